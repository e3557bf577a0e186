"""Rows with a prompt and a right answer, as a model is trained on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from transformers import PreTrainedTokenizerBase

from roll_pipelines.data.lengths import LengthCount, LengthPolicy, fit
from roll_pipelines.data.messages import Message, conversation
from roll_pipelines.data.processes import in_processes
from roll_protocol import DataProto

IGNORE_INDEX = -100

# B rows   S positions


@dataclass(frozen=True, slots=True)
class SupervisedRow:
    """One row: what is given, and what is learnt; or a conversation, of which the assistant's words are."""

    prompt: str = ""
    response: str = ""
    messages: tuple[Message, ...] = ()
    """Instead of the two texts; needs a tokenizer with a chat template."""


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A row as token ids; the answer ends with the end token."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    learnt: tuple[bool, ...] = ()
    """Which tokens of `response_ids` are learnt, where an answer holds words of others; empty means all."""

    def learns(self) -> bool:
        """Returns whether the row has a token to learn."""
        return any(self.learnt) if self.learnt else bool(self.response_ids)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Encoded rows, and what the length policy did to the others."""

    rows: tuple[EncodedRow, ...]
    count: LengthCount = field(default_factory=LengthCount)
    """A row that holds nothing to learn is counted as dropped."""


def encode_rows(
    rows: Sequence[SupervisedRow],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    policy: LengthPolicy = "truncate_right",
    workers: int = 1,
) -> EncodedRows:
    """Returns rows as token ids, none longer than `max_length`.

    Args:
        rows: prompts and answers.
        tokenizer: its end token is put after every answer.
        max_length: most tokens of prompt and answer together.
        policy: what happens to longer ones; see `fit`.
        workers: processes that encode.

    Raises:
        ValueError: nothing is left.
    """
    kept: list[EncodedRow] = []
    total = LengthCount()
    for row in in_processes(partial(encode_row, tokenizer=tokenizer), rows, workers=workers):
        count = LengthCount()
        shortened = _fitted(row, max_length=max_length, policy=policy, count=count)
        if shortened is not None and shortened.learns():
            kept.append(shortened)
            total += count
        else:
            total += LengthCount(dropped=1)
    if not kept:
        raise ValueError(
            f"none of {len(rows)} rows is left: {total.dropped} were dropped by the length policy {policy!r} "
            f"at sequence_length {max_length}; raise sequence_length or give more rows"
        )
    return EncodedRows(tuple(kept), total)


def encode_row(row: SupervisedRow, tokenizer: PreTrainedTokenizerBase) -> EncodedRow:
    """Returns one row as token ids: an answer with the end token after it, or the turns of a conversation.

    Raises:
        ValueError: a conversation cannot be told apart, or the tokenizer has no chat template.
    """
    if row.messages:
        talk = conversation(tokenizer, row.messages)
        first = talk.said.index(True) if any(talk.said) else len(talk.ids)
        return EncodedRow(talk.ids[:first], talk.ids[first:], talk.said[first:])
    prompt = tokenizer(row.prompt, add_special_tokens=True).input_ids
    response = tokenizer(row.response, add_special_tokens=False).input_ids
    return EncodedRow(tuple(prompt), (*response, int(tokenizer.eos_token_id)))


def _fitted(
    row: EncodedRow, *, max_length: int, policy: LengthPolicy, count: LengthCount
) -> EncodedRow | None:
    fitted = fit(row.prompt_ids, [row.response_ids], max_length=max_length, policy=policy, count=count)
    if fitted is None:
        return None
    (response,) = fitted.answers
    lost = len(row.response_ids) - len(response)
    learnt = row.learnt[lost:] if policy == "truncate_left" else row.learnt[: len(response)]
    return EncodedRow(fitted.prompt_ids, response, learnt)


def collate(rows: Sequence[EncodedRow], *, pad_token_id: int, length: int | None = None) -> DataProto:
    """Returns rows as one batch, padded on the right.

    Args:
        rows: encoded rows.
        pad_token_id: what stands in the padding; masks come from lengths, never from this value.
        length: positions of every row; the longest row's when None.

    Returns:
        `input_ids`, `attention_mask` [B, S] and `labels` [B, S]: `labels[:, t]` is the answer token that
        position t predicts, -100 where nothing is learnt.
    """
    longest = max((len(row.prompt_ids) + len(row.response_ids) for row in rows), default=1)
    width = longest if length is None else length
    assert longest <= width, "rows were encoded to fit"
    ids = torch.full((len(rows), width), pad_token_id, dtype=torch.int64)
    mask = torch.zeros(len(rows), width, dtype=torch.int64)
    labels = torch.full((len(rows), width), IGNORE_INDEX, dtype=torch.int64)
    for index, row in enumerate(rows):
        tokens = torch.tensor([*row.prompt_ids, *row.response_ids], dtype=torch.int64)
        start = max(1, len(row.prompt_ids))
        ids[index, : len(tokens)] = tokens
        mask[index, : len(tokens)] = 1
        targets = tokens.clone()
        if row.learnt:
            targets[len(row.prompt_ids) :][~torch.tensor(row.learnt)] = IGNORE_INDEX
        labels[index, start - 1 : len(tokens) - 1] = targets[start:]
    return DataProto.from_single_dict({"input_ids": ids, "attention_mask": mask, "labels": labels})


def epoch_order(rows: int, *, seed: int, epoch: int, shuffle: bool = True) -> list[int]:
    """Returns the order of one pass over the data; it depends on nothing but its arguments.

    Args:
        rows: how many there are.
        seed: the run's seed.
        epoch: number of the pass.
        shuffle: False keeps the order of the file.
    """
    if not shuffle:
        return list(range(rows))
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return [int(index) for index in torch.randperm(rows, generator=generator)]


def in_batches(rows: Sequence[EncodedRow], batch_size: int) -> Iterator[Sequence[EncodedRow]]:
    """Yields all rows in order, the last batch as short as it must be."""
    for start in range(0, len(rows), batch_size):
        yield rows[start : start + batch_size]
