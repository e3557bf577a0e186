"""Accuracy on problems that are never trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from roll_pipelines.columns import objects, tensor
from roll_pipelines.rollouts import answer_texts
from roll_protocol import DataProto

# B problems   n answers a problem


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How often answers to the held-out problems are right, and what some of them look like."""

    accuracy: float
    """Share of right answers among all that were drawn."""
    greedy_accuracy: float
    """Share of problems whose most likely answer is right."""
    samples: list[dict[str, Any]]  # Any: text and numbers
    """A few problems with their first answer."""


def evaluation(
    drawn: DataProto, greedy: DataProto, tokenizer: PreTrainedTokenizerBase, *, shown: int
) -> Evaluation:
    """Returns the evaluation of judged answers.

    Args:
        drawn: [B * n] answers with `rewards`; a reward of 1 or more is a right answer.
        greedy: [B] most likely answers with `rewards`.
        tokenizer: of the model.
        shown: problems that stand in `samples`.
    """
    return Evaluation(
        accuracy=share_right(tensor(drawn, "rewards")),
        greedy_accuracy=share_right(tensor(greedy, "rewards")),
        samples=sample_answers(greedy, tokenizer, shown=shown),
    )


def share_right(rewards: Tensor) -> float:
    """Returns the share of rewards [N] that are 1 or more."""
    return float((rewards >= 1.0).double().mean())


def sample_answers(
    rows: DataProto, tokenizer: PreTrainedTokenizerBase, *, shown: int
) -> list[dict[str, Any]]:
    """Returns the first answers as text, for the report.

    Args:
        rows: answers with `rewards`.
        tokenizer: of the model.
        shown: how many.
    """
    few = rows.slice(0, min(shown, len(rows)))
    columns: Sequence[Sequence[Any]] = (
        [str(prompt) for prompt in objects(few, "prompt")],
        answer_texts(few, tokenizer),
        [str(expected) for expected in objects(few, "expected")],
        [bool(reward >= 1.0) for reward in tensor(few, "rewards").tolist()],
    )
    names = ("prompt", "response", "expected", "correct")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def rollout_metrics(rows: DataProto, *, group_size: int) -> Mapping[str, float]:
    """Returns what the answers of a step were like.

    Args:
        rows: answers with `rewards`, those of a problem together, and with the log-probabilities of their
            tokens as the engine drew them (`infer_logprobs`) and as the policy sees them (`old_log_probs`).
        group_size: answers to one problem.
    """
    rewards = tensor(rows, "rewards").double()
    lengths = tensor(rows, "response_lengths").double()
    groups = rewards.reshape(-1, group_size)
    apart = (tensor(rows, "infer_logprobs") - tensor(rows, "old_log_probs")).abs()
    finished = [reason == "stop" for reason in objects(rows, "finish_reasons")]
    return {
        "rollout/reward": float(rewards.mean()),
        "rollout/reward_std": float(rewards.std(unbiased=False)),
        "rollout/response_length": float(lengths.mean()),
        "rollout/finished": sum(finished) / max(1, len(finished)),
        "rollout/train_infer_difference": float(apart.max()) if apart.numel() else 0.0,
        "rollout/groups_with_signal": float((groups.amax(-1) > groups.amin(-1)).double().mean()),
    }
