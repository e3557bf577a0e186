"""A transport to strategies in this process."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roll_strategies.weights.transport import Answer


class _Futures:
    def __init__(self, futures: Sequence[Any]) -> None:  # Any: futures of whatever the target answers
        self._futures = futures

    def result(self, timeout_s: float | None = None) -> list[object]:
        try:
            return [future.result(timeout_s) for future in self._futures]
        except TimeoutError as late:
            silent = [rank for rank, future in enumerate(self._futures) if not future.done()]
            raise TimeoutError(f"ranks {silent} did not answer within {timeout_s} s") from late


class DirectTransport:
    """Calls the targets' methods in threads of this process; a twin of the executor's transport for tests.

    Args:
        targets: strategies, in rank order.
        spoil: changes a message on its way to a target, to see what the target makes of it.
    """

    def __init__(
        self, targets: Sequence[object], *, spoil: Callable[[int, str, object], object] | None = None
    ) -> None:
        self._targets = targets
        self._spoil = spoil
        self._pools = [ThreadPoolExecutor(1) for _ in targets]
        self.sent: list[str] = []

    def send(self, method: str, payload: object) -> Answer:
        """Calls `method(payload)` on every target."""
        self.sent.append(method)
        futures = []
        for index, (target, pool) in enumerate(zip(self._targets, self._pools, strict=True)):
            message = payload if self._spoil is None else self._spoil(index, method, payload)
            futures.append(pool.submit(getattr(target, method), message))
        return _Futures(futures)
