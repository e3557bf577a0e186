"""Batches on their way from problems to training rows; every mask comes from a length."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from roll_pipelines.columns import tensor
from roll_pipelines.data.problems import Problem
from roll_protocol import DataProto, object_array

# B prompts   n answers a prompt   P prompt positions   R response positions   S = P + R

LARGEST_SEED = 2**62


def prompt_batch(
    problems: Sequence[Problem],
    tokenizer: PreTrainedTokenizerBase,
    *,
    prompt_length: int,
    seed: int,
    step: int,
) -> DataProto:
    """Returns problems as prompts to generate from.

    Args:
        problems: B of them.
        tokenizer: of the model.
        prompt_length: positions of every row.
        seed: the run's seed.
        step: number of the step; with seed and row it decides what is drawn for each row, wherever that is.

    Returns:
        `input_ids`, `attention_mask` [B, P] padded on the left, `seeds` [B], and the object columns `prompt`,
        `expected` and `entry`.

    Raises:
        ValueError: a prompt is longer than `prompt_length`, or empty.
    """
    ids = torch.full((len(problems), prompt_length), pad_id(tokenizer), dtype=torch.int64)
    mask = torch.zeros(len(problems), prompt_length, dtype=torch.int64)
    for row, problem in enumerate(problems):
        tokens = tokenizer(problem.prompt).input_ids
        if not 1 <= len(tokens) <= prompt_length:
            raise ValueError(
                f"prompt {problem.prompt!r} has {len(tokens)} tokens, but prompt_length allows 1 to "
                f"{prompt_length}; raise prompt_length or choose a shorter task.prompt_template"
            )
        ids[row, prompt_length - len(tokens) :] = torch.tensor(tokens)
        mask[row, prompt_length - len(tokens) :] = 1
    return DataProto.from_single_dict(
        {
            "input_ids": ids,
            "attention_mask": mask,
            "seeds": row_seeds(seed, step, len(problems)),
            "prompt": object_array([problem.prompt for problem in problems]),
            "expected": object_array([problem.answer for problem in problems]),
            "entry": object_array([problem.entry for problem in problems]),
        }
    )


def row_seeds(seed: int, step: int, rows: int) -> Tensor:
    """Returns one seed for each row [rows] int64; the same for the same arguments, different for any other.

    Args:
        seed: the run's seed.
        step: number of the step; -1 is taken by evaluation.
        rows: how many.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step + 1) % LARGEST_SEED)
    return torch.randint(LARGEST_SEED, (rows,), generator=generator)


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Returns the token for padding: the end token when a tokenizer has none of its own.

    Raises:
        ValueError: it has neither.
    """
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if isinstance(token, int):
            return token
    raise ValueError(
        f"the tokenizer {type(tokenizer).__name__} has neither a padding nor an end token; set one"
    )


def training_rows(prompts: DataProto, answers: DataProto, *, group_size: int, pad_token_id: int) -> DataProto:
    """Returns one training row for each answer: prompt and answer without a gap, padded on the right.

    Args:
        prompts: what `prompt_batch` returned, B rows.
        answers: what `generate` returned for it, B * n rows: `responses`, `response_lengths`,
            `infer_logprobs`, `finish_reasons`.
        group_size: n.
        pad_token_id: what stands in the padding; an answer may hold the same id.

    Returns:
        `input_ids`, `attention_mask`, `position_ids`, `response_mask` [B * n, S], `infer_logprobs`
        [B * n, S-1], `responses`, `response_lengths`, and the object columns of both, each prompt n times.

    Raises:
        ValueError: the answers are not n for each prompt.
    """
    if len(answers) != len(prompts) * group_size:
        raise ValueError(
            f"{len(prompts)} prompts with {group_size} answers each make {len(prompts) * group_size} rows, "
            f"but generate returned {len(answers)}; num_return_sequences and the group size must agree"
        )
    repeated = prompts.select(["input_ids", "attention_mask"], ["prompt", "expected", "entry"]).repeat(
        group_size
    )
    prompt_ids, prompt_mask = tensor(repeated, "input_ids"), tensor(repeated, "attention_mask")
    responses, lengths = tensor(answers, "responses"), tensor(answers, "response_lengths")
    positions = torch.arange(prompt_ids.shape[1] + responses.shape[1])
    prompt_lengths = prompt_mask.sum(-1)
    total = (prompt_lengths + lengths)[:, None]
    real = positions < total
    answered = real & (positions >= prompt_lengths[:, None])
    # Rows are moved left by their own padding: position t holds what stood at t + padding.
    source = positions + (prompt_ids.shape[1] - prompt_lengths)[:, None]
    whole = torch.cat([prompt_ids, responses], dim=1)
    moved = whole.gather(1, source.clamp(max=whole.shape[1] - 1))
    ids = torch.where(real, moved, torch.full_like(moved, pad_token_id))
    drawn = torch.cat([torch.zeros(prompt_ids.shape), tensor(answers, "infer_logprobs")], dim=1)
    log_probs = torch.where(answered, drawn.gather(1, source.clamp(max=whole.shape[1] - 1)), torch.zeros(()))
    columns = {
        "input_ids": ids,
        "attention_mask": real.long(),
        "position_ids": torch.where(real, positions.expand_as(ids), torch.zeros_like(ids)),
        "response_mask": answered.long(),
        "infer_logprobs": log_probs[:, 1:],
        "responses": responses,
        "response_lengths": lengths,
    }
    objects = {name: repeated.non_tensor_batch[name] for name in ("prompt", "expected", "entry")}
    objects["finish_reasons"] = answers.non_tensor_batch["finish_reasons"]
    return DataProto.from_single_dict({**columns, **objects})


def answer_texts(rows: DataProto, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Returns what was written in each answer, cut at its length, without special tokens.

    Args:
        rows: with `responses` [B, R] and `response_lengths` [B].
        tokenizer: of the model.
    """
    pairs = zip(tensor(rows, "responses").tolist(), tensor(rows, "response_lengths").tolist(), strict=True)
    return [str(tokenizer.decode(ids[:length], skip_special_tokens=True)) for ids, length in pairs]
