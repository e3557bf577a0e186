"""Calls that are recorded, and one rank of them run again alone, in this process, under a debugger."""

import asyncio
import inspect
import json
import os
import pickle
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from pdb import Pdb
from typing import Any

from roll_executor.binding import has_async_methods
from roll_executor.circumstances import Circumstances
from roll_executor.errors import ExecutorError
from roll_executor.host import CIRCUMSTANCES, Header, Host
from roll_executor.sending import Part, send
from roll_executor.workers import Workers

ANSWER_S = 60.0
"""Longest wait for what the ranks tell of themselves."""


class RecordError(ExecutorError, ValueError):
    """A record cannot be written, or is none, or lacks the rank that is asked for."""


class Recorder:
    """Writes each call of a cluster into a folder of its own.

    Args:
        folder: where the folders go, one per call, ``<number>-<method>``.
        cluster: name of the cluster.
        worker_cls: the worker class.
        config: the configuration of the role.
    """

    def __init__(
        self, folder: Path, *, cluster: str, worker_cls: type, config: Any
    ) -> None:  # Any: see Worker
        self._folder = folder
        self._cluster = cluster
        self._worker_cls = worker_cls
        self._config = config
        self._number = 0

    def write(
        self,
        workers: Workers,
        header: Header,
        parts: Sequence[Part | None],
        initialized: Sequence[Part | None] | None,
    ) -> Path:
        """Ask the ranks for their circumstances and write one call; return its folder.

        Args:
            workers: who will be called.
            header: what will be called.
            parts: the arguments by rank.
            initialized: the arguments of ``initialize`` by rank; None: it was not called.

        Raises:
            RecordError: if an argument cannot be pickled.
        """
        asked: list[Part | None] = [None if part is None else ((), {}) for part in parts]
        tickets = send(workers, asked, Header(method=CIRCUMSTANCES))
        circumstances: Mapping[int, Circumstances]
        circumstances, _ = workers.gather(tickets, [ticket.rank for ticket in tickets], ANSWER_S)
        self._number += 1
        folder = self._folder / f"{self._number:04d}-{header.method}"
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "cluster": self._cluster,
            "method": header.method,
            "worker_cls": f"{self._worker_cls.__module__}:{self._worker_cls.__qualname__}",
            "ranks": sorted(circumstances),
            "python": sys.version.split()[0],
            "search_path": [folder or os.getcwd() for folder in sys.path],
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        (folder / "call.json").write_text(json.dumps(about, indent=2) + "\n")
        for rank, told in circumstances.items():
            record = {
                "header": replace(header, carriage=None),
                "part": parts[rank],
                "initialized": initialized[rank] if initialized else None,
                "worker_cls": self._worker_cls,
                "config": self._config,
                "circumstances": told,
            }
            try:
                (folder / f"rank-{rank}.pkl").write_bytes(pickle.dumps(record, protocol=5))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise RecordError(
                    f"{self._cluster}.{header.method} cannot be recorded: rank {rank} has an argument, class "
                    f"or configuration that pickle cannot take ({error}); define it in an importable module"
                ) from error
        return folder


def replay(
    record: str | Path, rank: int, *, initialize: bool = True, debugger: Pdb | None = None
) -> Any:  # Any: the user's own method
    """Run one rank of a recorded call alone in this process and thread, and return its result.

    The worker is built and initialized anew, with the environment and random state that it had; state that it
    gathered in between (trained weights) is not part of a record. Records are pickles: load none that a
    stranger wrote.

    Args:
        record: the folder of the call.
        rank: which rank.
        initialize: whether to call ``initialize`` first; leave it out when it waits for the other ranks.
        debugger: stops at the first line of the method; None: only breakpoints in the code stop it.

    Returns:
        What the method returned; the list of its items when it is a generator.

    Raises:
        RecordError: if the folder holds no such rank, or its classes cannot be imported here.
        WorkerError: what the worker raises.
    """
    content = _load(Path(record), rank)
    told: Circumstances = content["circumstances"]
    os.environ.update(told.environment)
    header: Header = content["header"]
    host = Host(lambda: content["worker_cls"](content["config"]), place=told.place, pid=os.getpid())
    with asyncio.Runner() as loop:  # it starts a loop only for a class that has coroutine methods
        if initialize and content["initialized"] is not None:
            _call(host, Header(method="initialize"), content["initialized"], loop)
        random.setstate(told.python_random)  # type: ignore[arg-type]  # what getstate gave
        host.hooks.set_random_state(told.random_state)
        if debugger is not None:
            method = getattr(host.worker, header.method)
            setattr(host.worker, header.method, partial(debugger.runcall, method))
        return _call(host, header, content["part"], loop)


def _call(
    host: Host, header: Header, part: Part, loop: asyncio.Runner
) -> Any:  # Any: result of the user's own method
    args, kwargs = part
    worker_cls = type(host.worker)
    method = getattr(worker_cls, header.method)
    streams = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
    if has_async_methods(worker_cls):
        if streams:
            return loop.run(_drained(host.astream(header, args, kwargs)))
        return loop.run(host.acall(header, args, kwargs))[0]
    return list(host.stream(header, args, kwargs)) if streams else host.call(header, args, kwargs)[0]


async def _drained(items: AsyncIterator[Any]) -> list[Any]:  # Any: items of the user's own generator
    return [item async for item in items]


def _load(folder: Path, rank: int) -> dict[str, Any]:  # Any: what the recorder wrote
    if not (folder / "call.json").is_file():
        raise RecordError(f"{folder} is no recorded call: it has no call.json; name the folder of one call")
    about = json.loads((folder / "call.json").read_text())
    path = folder / f"rank-{rank}.pkl"
    if not path.is_file():
        raise RecordError(f"{folder} has no rank {rank}; it has {about['ranks']}")
    sys.path += [found for found in about["search_path"] if found not in sys.path and os.path.isdir(found)]
    try:
        content: dict[str, Any] = pickle.loads(path.read_bytes())
    except (ImportError, AttributeError) as missing:
        raise RecordError(
            f"{folder} needs {about['worker_cls']} or a class of its arguments, which cannot be imported "
            f"here ({missing}); classes of a script's __main__ cannot be replayed: move them into a module"
        ) from missing
    return content
