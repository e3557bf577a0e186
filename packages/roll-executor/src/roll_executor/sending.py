"""Sending the parts of one call: what several ranks share travels once."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from roll_executor.host import Header
from roll_executor.transfer import Carriage, Carried
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
    parts = loaded(parts, header.carriage)
    try:
        return _submitted(workers, parts, header, whole)
    except Exception:
        if header.carriage is not None:  # nobody will wait for the call
            header.carriage.end(failed=True)
        raise


def _submitted(
    workers: Workers, parts: Sequence[Part | None], header: Header, whole: Collection[int]
) -> list[Ticket]:
    one_way = header
    if header.carriage is not None:
        one_way = replace(header, carriage=header.carriage.one_way())
    called = [(rank, part) for rank, part in enumerate(parts) if part is not None]

    def submit(rank: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ticket:  # Any: as in Part
        is_whole = rank in whole
        return workers.submit(rank, header if is_whole else one_way, args, kwargs, whole=is_whole)

    if not any(args or kwargs for _, (args, kwargs) in called):
        return [submit(rank, (), {}) for rank, _ in called]
    uses = Counter(id(value) for _, part in called for value in _values(part))
    shared: dict[int, object] = {}

    def sent(value: object) -> object:
        if uses[id(value)] == 1 or isinstance(value, Carried):
            return value
        if id(value) not in shared:
            shared[id(value)] = workers.share(value)
        return shared[id(value)]

    tickets = []
    for rank, (args, kwargs) in called:
        own_args = tuple(sent(value) for value in args)
        own_kwargs = {key: sent(value) for key, value in kwargs.items()}
        tickets.append(submit(rank, own_args, own_kwargs))
    return tickets


def loaded(parts: Sequence[Part | None], carriage: Carriage | None) -> Sequence[Part | None]:
    """Return what travels in place of the parts, each distinct payload stored once.

    Raises:
        TransferError: if one cannot be stored; then none is.
    """
    if carriage is None:
        return parts
    known: dict[int, object] = {}

    def load(value: object) -> object:
        if id(value) not in known:
            known[id(value)] = carriage.load(value)
        return known[id(value)]

    def load_part(part: Part) -> Part:
        args, kwargs = part
        return tuple(load(value) for value in args), {name: load(value) for name, value in kwargs.items()}

    try:
        return [None if part is None else load_part(part) for part in parts]
    except Exception:
        carriage.end(failed=True)
        raise


def _values(part: Part) -> tuple[object, ...]:
    args, kwargs = part
    return (*args, *kwargs.values())
