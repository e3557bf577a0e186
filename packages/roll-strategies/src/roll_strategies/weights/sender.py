"""The source's side of an update: gather bucket by bucket, send, and believe only receipts."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from roll_strategies.errors import WeightSyncError
from roll_strategies.weights.digest import combined, digest_of
from roll_strategies.weights.manifest import (
    Bucket,
    BucketEntry,
    Manifest,
    ParameterSpec,
    UpdateReceipt,
    dtype_of,
)
from roll_strategies.weights.plan import Gathered, UpdatePlan, manifest_of, plan_update
from roll_strategies.weights.transport import Answer, OwnSpace, SendsInPlace, Transport

logger = logging.getLogger(__name__)

Agree = Callable[[str | None], str | None]
"""Tells all source ranks whether the sender failed, and returns the sender's message on each; None means it
did not."""


class WeightSender:
    """Sends a model's state over a transport; every rank of the source calls `send`, one of them sends.

    Args:
        transport: reaches every target; None on the ranks that only help to gather.
        bucket_bytes: upper bound of one message, unless one parameter is larger.
        digest: `sampled` or `full`.
        timeout_s: how long an answer may take.
        dtype: dtype on the wire of floating tensors; None keeps each tensor's own.
        agree: how the ranks of the source share the outcome.
    """

    def __init__(
        self,
        *,
        transport: Transport | None,
        bucket_bytes: int,
        digest: str = "sampled",
        timeout_s: float = 600.0,
        dtype: torch.dtype | None = None,
        agree: Agree = lambda message: message,
    ) -> None:
        self._transport = transport
        self._bucket_bytes = bucket_bytes
        self._mode = digest
        self._timeout_s = timeout_s
        self._dtype = dtype
        self._agree = agree

    def send(self, named: Mapping[str, Tensor | Gathered], *, version: int) -> dict[str, float]:
        """Sends one whole update and returns `bytes`, `seconds`, `buckets` and `targets`.

        Raises:
            WeightSyncError: a target refused, was silent, or holds something else now; on every rank of the
                source.
        """
        started = time.monotonic()
        manifest = manifest_of(named, version=version, dtype=self._dtype)
        plan = plan_update(manifest.parameters, bucket_bytes=self._bucket_bytes)
        update = _Update(self._transport, manifest, plan, mode=self._mode, timeout_s=self._timeout_s)
        update.begin()
        for index, bucket in enumerate(plan.buckets):
            for spec, start in zip(bucket.specs, bucket.starts, strict=True):
                # Gathering is collective: other ranks wait for it even when sending has failed already.
                update.pack(index, spec, start, _whole(named[spec.name]))
            update.put(index)
        update.commit()
        problem = self._agree(update.problem)
        if problem is not None:
            raise WeightSyncError(problem) from update.cause
        return {
            "bytes": float(plan.num_bytes),
            "seconds": time.monotonic() - started,
            "buckets": float(len(plan.buckets)),
            "targets": float(update.targets),
        }


def _whole(tensor: Tensor | Gathered) -> Tensor:
    """Returns the whole of a tensor that may be sharded; a collective when it is."""
    with torch.no_grad():
        full = tensor.full_tensor() if isinstance(tensor, Gathered) else tensor
        return full.detach()


class _Update:
    """One update at the sender; on the other ranks it does nothing. A failure is kept, not raised."""

    def __init__(
        self,
        transport: Transport | None,
        manifest: Manifest,
        plan: UpdatePlan,
        *,
        mode: str,
        timeout_s: float,
    ) -> None:
        self._transport, self._manifest, self._plan = transport, manifest, plan
        self._mode, self._timeout_s = mode, timeout_s
        self._pending: deque[tuple[str, Answer]] = deque()
        self._digests: dict[str, int] = {}
        self._entries: list[BucketEntry] = []
        self._in_place: dict[int, Tensor] = {}
        self._spaces: list[Tensor | None] = [None, None]
        self.problem: str | None = None
        self.cause: Exception | None = None
        self.targets = 0

    def begin(self) -> None:
        self._step("begin_update", self._manifest, "begin")
        answers = self._wait()
        self.targets = len(answers)

    def pack(self, index: int, spec: ParameterSpec, start: int, whole: Tensor) -> None:
        """Copies one parameter into its bucket, converting it to the dtype on the wire."""
        if not self._entries:
            # One bucket may be travelling while this one is packed: there is memory for two.
            self._wait(keep=1)
        if self._transport is None or self.problem is not None:
            return
        wire = dtype_of(spec.dtype)
        if isinstance(self._transport, SendsInPlace) and self._transport.takes(whole, wire):
            part = self._in_place[start] = whole.view(-1).view(torch.uint8)
        else:
            part = self._space(index)[start : start + spec.num_bytes]
            part.view(wire).view(spec.shape).copy_(whole)
        digest = digest_of(part, mode=self._mode)
        self._digests[spec.name] = digest
        self._entries.append(
            BucketEntry(name=spec.name, start=start, num_bytes=spec.num_bytes, digest=digest)
        )

    def put(self, index: int) -> None:
        """Sends a packed bucket; the one before it may still be on its way."""
        if self._transport is None or self.problem is not None:
            return
        data = self._space(index)
        message = Bucket(
            version=self._manifest.version,
            index=index,
            entries=tuple(self._entries),
            num_bytes=len(data),
            data=data if isinstance(self._transport, OwnSpace) else data.numpy(),
            in_place=self._in_place,
        )
        first = self._entries[0].name
        self._entries, self._in_place = [], {}
        self._step("update_parameter_in_bucket", message, f"put of bucket {index} ({first!r} and on)")

    def _space(self, index: int) -> Tensor:
        """Returns memory for a bucket. Two spaces take turns: the other one may still be travelling."""
        space = self._spaces[index % 2]
        if space is None:
            size = max(bucket.num_bytes for bucket in self._plan.buckets)
            own = self._transport
            space = own.space(size) if isinstance(own, OwnSpace) else torch.empty(size, dtype=torch.uint8)
            self._spaces[index % 2] = space
        return space[: self._plan.buckets[index].num_bytes]

    def commit(self) -> None:
        self._wait()
        self._step("commit_update", self._manifest.version, "commit")
        expected = combined(self._digests.items())
        for receipt in self._wait():
            assert isinstance(receipt, UpdateReceipt)
            if receipt.digest != expected or receipt.num_parameters != len(self._digests):
                self._fail(
                    f"target rank {receipt.rank} holds other weights than were sent (digest "
                    f"{receipt.digest} instead of "
                    f"{expected})",
                    "commit",
                    None,
                )
        if self.problem is not None and self._transport is not None:
            self._abort(self._transport)

    def _step(self, method: str, payload: object, phase: str) -> None:
        if self._transport is None or self.problem is not None:
            return
        try:
            self._pending.append((phase, self._transport.send(method, payload)))
        except Exception as error:  # noqa: BLE001  # whatever the transport raises, peers must still be told
            self._fail(str(error), phase, error)

    def _wait(self, *, keep: int = 0) -> list[object]:
        """Waits until at most `keep` messages are unanswered, and returns the last answers that came."""
        answers: list[object] = []
        while len(self._pending) > keep and self.problem is None:
            phase, answer = self._pending.popleft()
            try:
                answers = answer.result(self._timeout_s)
            except Exception as error:  # noqa: BLE001  # whatever the transport raises, peers must still be told
                self._fail(str(error) or type(error).__name__, phase, error)
                return []
        return answers

    def _fail(self, why: str, phase: str, cause: Exception | None) -> None:
        if self.problem is None:
            self.problem = f"update {self._manifest.version} failed in {phase}: {why}"
            self.cause = cause

    def _abort(self, transport: Transport) -> None:
        try:
            transport.send("abort_update", self._manifest.version).result(self._timeout_s)
        except Exception:
            logger.exception("targets could not be told to give update %d up", self._manifest.version)
