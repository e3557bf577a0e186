"""Calls that are recorded, and one rank of them run again alone, in this process, under a debugger."""

import json
import os
import pickle
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        (folder / "call.json").write_text(json.dumps(about, indent=2) + "\n")
        for rank, told in circumstances.items():
            record = {
                "header": header,
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


def replay(record: str | Path, rank: int, *, initialize: bool = True) -> Any:  # Any: the user's own method
    """Run one rank of a recorded call alone in this process and thread, and return its result.

    The worker is built and initialized anew, with the environment and random state that it had; state that it
    gathered in between (trained weights) is not part of a record. Records are pickles: load none that a
    stranger wrote.

    Args:
        record: the folder of the call.
        rank: which rank.
        initialize: whether to call ``initialize`` first; leave it out when it waits for the other ranks.

    Raises:
        RecordError: if the folder holds no such rank.
        WorkerError: what the worker raises.
    """
    folder = Path(record)
    if not (folder / "call.json").is_file():
        raise RecordError(f"{folder} is no recorded call: it has no call.json; name the folder of one call")
    path = folder / f"rank-{rank}.pkl"
    if not path.is_file():
        ranks = json.loads((folder / "call.json").read_text())["ranks"]
        raise RecordError(f"{folder} has no rank {rank}; it has {ranks}")
    content = pickle.loads(path.read_bytes())
    told: Circumstances = content["circumstances"]
    os.environ.update(told.environment)
    host = Host(lambda: content["worker_cls"](content["config"]), place=told.place, pid=os.getpid())
    if initialize and content["initialized"] is not None:
        args, kwargs = content["initialized"]
        host.call(Header(method="initialize"), args, kwargs)
    random.setstate(told.python_random)  # type: ignore[arg-type]  # what getstate gave
    host.hooks.set_random_state(told.random_state)
    args, kwargs = content["part"]
    result, _ = host.call(content["header"], args, kwargs)
    return result
