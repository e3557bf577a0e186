"""How Ray's references are resolved: the entry point ``ray`` of the group ``roll.refs``."""

from collections.abc import Sequence
from typing import cast

import ray

from roll_executor.errors import Where
from roll_executor.on_ray.failures import translate
from roll_executor.pending import owners_of


def resolve(refs: Sequence[object], *, timeout_s: float | None = None) -> list[object]:
    """Return the values of references in their order.

    A reference that belongs to a pending call of a cluster is resolved with that call, so that a failure of
    any of its ranks surfaces.

    Raises:
        WorkerError: if the call that a reference belongs to failed.
        TimeoutError: if they are not there within ``timeout_s``.
    """
    for call in owners_of(refs):
        call.values(timeout_s)
    try:
        found: list[object] = ray.get(cast("list[ray.ObjectRef[object]]", list(refs)), timeout=timeout_s)
    except ray.exceptions.GetTimeoutError as late:
        raise TimeoutError(f"{len(refs)} result(s) were not there within {timeout_s} s") from late
    except ray.exceptions.RayError as error:
        raise translate(error, Where(cluster="unknown", rank=0)) from error
    return found


def fetch(reference: object, where: Where) -> object:
    """Return the value of one reference of one worker.

    Raises:
        WorkerError: if the worker failed.
    """
    try:
        return ray.get(cast("ray.ObjectRef[object]", reference))
    except ray.exceptions.RayError as error:
        raise translate(error, where) from None
