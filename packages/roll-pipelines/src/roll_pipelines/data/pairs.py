"""Preference pairs: two answers to one prompt, of which one is preferred."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from transformers import PreTrainedTokenizerBase

from roll_pipelines.data.lengths import LengthCount, LengthPolicy, fit
from roll_pipelines.data.messages import Message, chat_ids, messages_of
from roll_pipelines.data.processes import in_processes
from roll_pipelines.data.sources import DataError, SourceRow
from roll_protocol import DataProto

# P pairs   S positions

Side = str | list[Message]
"""A prompt or an answer: plain text, or messages."""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """One row. An answer may be missing where a loss learns from single answers."""

    prompt: Side
    chosen: Side | None
    rejected: Side | None


@dataclass(frozen=True, slots=True)
class PairColumns:
    """Names of the columns of a row with preferences."""

    prompt: str = "prompt"
    chosen: str = "chosen"
    rejected: str = "rejected"
    response: str = "response"
    """Of a row with a single answer."""
    label: str = "label"
    """Whether a single answer is a preferred one."""


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A pair as token ids; a missing answer has none."""

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Encoded pairs, and what the length policy did to the others."""

    pairs: tuple[EncodedPair, ...]
    count: LengthCount = field(default_factory=LengthCount)


def parse_pair(row: SourceRow, columns: PairColumns, *, singles: bool) -> PreferencePair:
    """Returns the pair in a row.

    A prompt and answers may be texts or messages. Without a prompt column the two answers are whole
    conversations, and the prompt is the messages that they share.

    Args:
        row: as it was read.
        columns: names of the columns.
        singles: whether rows with one answer and a label are taken as well.

    Raises:
        DataError: the row has another form.
    """
    if singles and columns.label in row.values:
        good = row.values[columns.label]
        if not isinstance(good, bool | int) or good not in (0, 1):
            raise DataError(f"{row.place}: column {columns.label!r} must be true or false, got {good!r:.80}")
        answer = _side(row, columns.response)
        return PreferencePair(_side(row, columns.prompt), answer if good else None, None if good else answer)
    chosen, rejected = _side(row, columns.chosen), _side(row, columns.rejected)
    if columns.prompt in row.values:
        return PreferencePair(_side(row, columns.prompt), chosen, rejected)
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise DataError(
            f"{row.place}: has no column {columns.prompt!r}; only answers that are whole "
            f"conversations can go without"
        )
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    if shared == 0 or shared in (len(chosen), len(rejected)):
        raise DataError(
            f"{row.place}: {columns.chosen!r} and {columns.rejected!r} must begin with the same messages and "
            f"then differ"
        )
    return PreferencePair(chosen[:shared], chosen[shared:], rejected[shared:])


def _side(row: SourceRow, column: str) -> Side:
    value = row.values.get(column)
    return messages_of(row, column) if isinstance(value, list) else row.text(column)


def encode_pairs(
    pairs: Sequence[PreferencePair],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    policy: LengthPolicy,
    as_chat: bool = False,
    workers: int = 1,
) -> EncodedPairs:
    """Returns pairs as token ids, no prompt with an answer longer than `max_length`.

    Args:
        pairs: of texts or messages.
        tokenizer: its end token is put after every answer that is a text; the chat template ends the others.
        max_length: most tokens of a prompt and one of its answers.
        policy: what happens to longer ones; see `fit`.
        as_chat: a text is a message, of the user in a prompt and of the assistant in an answer.
        workers: processes that encode.

    Raises:
        ValueError: nothing is left.
    """
    kept: list[EncodedPair] = []
    count = LengthCount()
    encode = partial(_ids, tokenizer=tokenizer, as_chat=as_chat)
    for prompt, answers in in_processes(encode, pairs, workers=workers):
        fitted = fit(prompt, answers, max_length=max_length, policy=policy, count=count)
        if fitted is not None:
            kept.append(EncodedPair(fitted.prompt_ids, *fitted.answers))
    if not kept:
        raise ValueError(
            f"none of {len(pairs)} pairs is left to train on: the length policy {policy!r} dropped all at "
            f"sequence_length {max_length}; raise sequence_length or give more pairs"
        )
    return EncodedPairs(tuple(kept), count)


def _ids(
    pair: PreferencePair, tokenizer: PreTrainedTokenizerBase, *, as_chat: bool
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    if isinstance(pair.prompt, str) and not as_chat:
        prompt = tuple(tokenizer(pair.prompt, add_special_tokens=True).input_ids)
        return prompt, (_text_ids(pair.chosen, tokenizer), _text_ids(pair.rejected, tokenizer))
    opening = _messages(pair.prompt, "user")
    prompt = chat_ids(tokenizer, opening, generation_prompt=True)
    return prompt, (
        _said(pair.chosen, opening, prompt, tokenizer),
        _said(pair.rejected, opening, prompt, tokenizer),
    )


def _text_ids(answer: Side | None, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    if answer is None:
        return ()
    if not isinstance(answer, str):
        raise ValueError(f"the prompt is a text, so its answers must be texts, got {answer!r:.80}")
    return (*tokenizer(answer, add_special_tokens=False).input_ids, int(tokenizer.eos_token_id))


def _messages(side: Side, role: str) -> list[Message]:
    return [{"role": role, "content": side}] if isinstance(side, str) else list(side)


def _said(
    answer: Side | None, opening: list[Message], prompt: tuple[int, ...], tokenizer: PreTrainedTokenizerBase
) -> tuple[int, ...]:
    if answer is None:
        return ()
    whole = chat_ids(tokenizer, [*opening, *_messages(answer, "assistant")])
    if whole[: len(prompt)] != prompt:
        raise ValueError(
            "the chat template writes the prompt differently once an answer follows, so the answer cannot be "
            "told apart; choose another data_args.template"
        )
    return whole[len(prompt) :]


def collate_pairs(
    pairs: Sequence[EncodedPair], *, pad_token_id: int, paired: bool, pad_to: int = 1
) -> DataProto:
    """Returns pairs as one batch; both answers of a pair stand in one row, so that no dispatch parts them.

    Args:
        pairs: encoded pairs.
        pad_token_id: what stands in the padding; masks come from lengths, never from this value.
        paired: the loss is a mean over pairs; otherwise over answers.
        pad_to: empty pairs are added until the number of pairs is a multiple of it.

    Returns:
        `input_ids`, `attention_mask`, `response_mask`, `pair_mask` [P, 2, S] int64 and `present` [P, 2]
        bool, the preferred answer first. `pair_mask` has a single 1 in each row that counts: its sum is
        what divides the loss.
    """
    total = -(-len(pairs) // pad_to) * pad_to
    width = max((_width(pair) for pair in pairs), default=2)
    ids = torch.full((total, 2, width), pad_token_id, dtype=torch.int64)
    columns = {name: torch.zeros_like(ids) for name in ("attention_mask", "response_mask", "pair_mask")}
    present = torch.zeros(total, 2, dtype=torch.bool)
    # A row that is all padding still needs something to attend to.
    columns["attention_mask"][:, :, :2] = 1
    for row, pair in enumerate(pairs):
        start = len(pair.prompt_ids)
        for side, answer in enumerate((pair.chosen_ids, pair.rejected_ids)):
            end = start + len(answer)
            ids[row, side, :end] = torch.tensor([*pair.prompt_ids, *answer])
            columns["attention_mask"][row, side] = 0
            columns["attention_mask"][row, side, :end] = 1
            columns["response_mask"][row, side, max(1, start) : end] = 1
            present[row, side] = bool(answer)
            columns["pair_mask"][row, side, 1] = int(bool(answer) and (side == 0 or not paired))
    return DataProto.from_single_dict({"input_ids": ids, **columns, "present": present})


def answer_rows(pairs: DataProto) -> DataProto:
    """Returns one row an answer [2P, ...]: of each pair the preferred one, and then the other one."""
    assert pairs.batch is not None, "pairs have tensors"
    columns = {str(name): pairs.batch[name].flatten(0, 1) for name in list(pairs.batch.keys())}
    return DataProto.from_single_dict(columns, meta_info=dict(pairs.meta_info))


def mismatched(pairs: Sequence[EncodedPair]) -> list[EncodedPair]:
    """Returns each prompt with an answer to the next one, as KTO's estimate of the divergence needs them."""
    answers = [pair.chosen_ids or pair.rejected_ids for pair in pairs]
    return [EncodedPair(pair.prompt_ids, answers[(n + 1) % len(pairs)], ()) for n, pair in enumerate(pairs)]


def _width(pair: EncodedPair) -> int:
    return max(2, len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids)))
