"""How messages of a weight update reach every target; the executor brings the implementation."""

from typing import Protocol, runtime_checkable

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
