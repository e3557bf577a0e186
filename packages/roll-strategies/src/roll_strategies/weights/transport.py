"""How messages of a weight update reach every target; the executor brings the implementation."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


class Answer(Protocol):
    """The targets' answers to one message, arriving."""

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Returns one answer per target in rank order; raises when a target raised or stayed silent."""
        ...


class Transport(Protocol):
    """Carries one message to every target worker."""

    def send(self, method: str, payload: object) -> Answer:
        """Calls `method(payload)` on every target without waiting."""
        ...


@runtime_checkable
class OwnSpace(Protocol):
    """A transport that says in which memory buckets are packed."""

    def space(self, num_bytes: int) -> Tensor:
        """Returns memory for a bucket: uint8, one dimension."""
        ...


@runtime_checkable
class SendsInPlace(OwnSpace, Protocol):
    """A transport that can send large parameters from where they are, without packing them."""

    def takes(self, whole: Tensor, dtype: torch.dtype) -> bool:
        """Returns whether the bytes of this tensor, in this dtype on the wire, can be sent as they lie."""
        ...
