"""Sending the parts of one call: what several ranks share travels once."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from roll_executor.host import Header
from roll_executor.workers import Ticket, Workers

Part = tuple[tuple[Any, ...], dict[str, Any]]  # Any: arguments of the user's own method


def send(
    workers: Workers, parts: Sequence[Part | None], header: Header, *, whole: Collection[int] = ()
) -> list[Ticket]:
    """Send each rank its part; None calls nobody. Equal objects of several ranks are serialised once.

    Args:
        workers: who receives them.
        parts: by global rank.
        header: what is called.
        whole: ranks whose results the caller fetches itself; see ``Workers.submit``.

    Returns:
        One ticket per rank that was called.
    """
    called = [(rank, part) for rank, part in enumerate(parts) if part is not None]
    if not any(args or kwargs for _, (args, kwargs) in called):
        return [workers.submit(rank, header, (), {}, whole=rank in whole) for rank, _ in called]
    uses = Counter(id(value) for _, part in called for value in _values(part))
    shared: dict[int, object] = {}

    def sent(value: object) -> object:
        if uses[id(value)] == 1:
            return value
        if id(value) not in shared:
            shared[id(value)] = workers.share(value)
        return shared[id(value)]

    tickets = []
    for rank, (args, kwargs) in called:
        own_args = tuple(sent(value) for value in args)
        own_kwargs = {key: sent(value) for key, value in kwargs.items()}
        tickets.append(workers.submit(rank, header, own_args, own_kwargs, whole=rank in whole))
    return tickets


def _values(part: Part) -> tuple[object, ...]:
    args, kwargs = part
    return (*args, *kwargs.values())
