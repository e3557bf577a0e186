"""Log-probabilities of the reference: scored when needed, or once for all pairs and kept in a file."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from roll_executor import Cluster
from roll_pipelines.columns import tensor
from roll_pipelines.data.pairs import EncodedPair, answer_rows, collate_pairs
from roll_pipelines.turns import Turns

logger = logging.getLogger(__name__)

# P pairs


class ReferenceScores:
    """The reference's log-probability of both answers of each pair.

    Args:
        cluster: the reference; None when the loss needs none, and then all numbers are 0.
        pad_token_id: for batches.
        batch_size: pairs scored at a time.
        turns: makes room for the cluster on devices that it shares.
        disable_adapter: the cluster is the policy, which is the reference without its adapter.
    """

    def __init__(
        self,
        cluster: Cluster | None,
        *,
        pad_token_id: int,
        batch_size: int,
        turns: Turns,
        disable_adapter: bool = False,
    ) -> None:
        self._cluster, self._pad, self._size = cluster, pad_token_id, batch_size
        self._turns = turns
        self._disable_adapter = disable_adapter
        self._cached: dict[EncodedPair, Tensor] = {}

    def of(self, pairs: Sequence[EncodedPair]) -> Tensor:
        """Returns the log-probabilities [P, 2] of pairs; cached ones are not scored again.

        Args:
            pairs: encoded pairs.
        """
        if self._cluster is None:
            return torch.zeros(len(pairs), 2)
        if self._cached:
            return torch.stack([self._cached[pair] for pair in pairs])
        return self.score(pairs)

    def cache(self, pairs: Sequence[EncodedPair], *, file: Path, model: str) -> None:
        """Scores all pairs once, or reads the numbers of an earlier start of the same run.

        Args:
            pairs: all that will ever be asked for.
            file: where the numbers are kept.
            model: the reference's model; a file of another model or of other pairs is not used.
        """
        unique = list(dict.fromkeys(pairs))
        digest = _digest(unique, model)
        log_probs = _read(file, digest)
        if log_probs is None:
            log_probs = self.score(unique)
            _write(file, digest, log_probs)
        else:
            logger.info("the reference's log-probabilities of %d pairs were read from %s", len(unique), file)
        self._cached = dict(zip(unique, log_probs, strict=True))

    def score(self, pairs: Sequence[EncodedPair]) -> Tensor:
        """Returns the log-probabilities [P, 2] of pairs, scored now."""
        assert self._cluster is not None, "only a loss that needs a reference asks for scores"
        found = []
        self._turns.give(self._cluster)
        for start in range(0, len(pairs), self._size):
            part = pairs[start : start + self._size]
            answers = answer_rows(collate_pairs(part, pad_token_id=self._pad, paired=True))
            answers.meta_info["disable_adapter"] = self._disable_adapter
            found.append(tensor(self._cluster.score(answers), "log_probs").reshape(len(part), 2))
        return torch.cat(found)


def _read(file: Path, digest: str) -> Tensor | None:
    if not file.exists():
        return None
    kept = torch.load(file, weights_only=True)
    return kept["log_probs"] if kept["digest"] == digest else None


def _write(file: Path, digest: str, log_probs: Tensor) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    staging = file.with_suffix(".partial")
    torch.save({"digest": digest, "log_probs": log_probs}, staging)
    staging.replace(file)


def _digest(pairs: Sequence[EncodedPair], model: str) -> str:
    sums = hashlib.sha256(model.encode())
    for pair in pairs:
        sums.update(repr((pair.prompt_ids, pair.chosen_ids, pair.rejected_ids)).encode())
    return sums.hexdigest()
