"""Work on many rows, in this process or in several."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

PARTS = 8
"""Parts that each process gets, so that none waits long for the last one."""


def _module_of(function: object) -> str:
    """Returns the name of the module that a function, or a partial of it, stands in."""
    return str(getattr(getattr(function, "func", function), "__module__", __name__))


def in_processes(function: Callable[[Given], Made], rows: Sequence[Given], *, workers: int) -> list[Made]:
    """Returns what a function makes of each row, in the order of the rows.

    Args:
        function: can be pickled when there are several processes.
        rows: what it is given.
        workers: processes; 1 is this one.

    Raises:
        Exception: what the function raises.
    """
    if workers <= 1 or len(rows) < 2:
        return [function(row) for row in rows]
    size = -(-len(rows) // (PARTS * workers))
    context = get_context("forkserver")
    # Imported once, before the processes are forked off; a fork of this process would inherit its threads.
    context.set_forkserver_preload([_module_of(function)])
    with ProcessPoolExecutor(min(workers, len(rows)), mp_context=context) as pool:
        return list(pool.map(function, rows, chunksize=size))
