"""Running one function as several ranks, each in a process of its own."""

import importlib.util
import inspect
import multiprocessing
import os
import pickle
import queue
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PRELOADED = ["torch", "roll_strategies", "roll_strategies.fsdp2", "roll_strategies.hf"]


class RankFailure(AssertionError):
    """A rank raised, died, or did not answer in time; the message holds its traceback."""


def free_port() -> int:
    """Returns a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_ranks(
    function: Callable[..., object], world_size: int, *args: object, timeout_s: float = 120.0
) -> list[Any]:  # Any: whatever the function returns
    """Returns what `function(rank, world_size, port, *args)` returned on each rank.

    Args:
        function: at the top level of a file; the file is loaded anew in each process.
        world_size: number of ranks.
        args: can be pickled.
        timeout_s: for all ranks together.

    Raises:
        RankFailure: a rank raised, died or was too slow; the others are ended.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    answers = context.Queue()
    port = free_port()
    file = inspect.getfile(function)
    processes = [
        context.Process(
            target=_run, args=(answers, file, function.__name__, rank, world_size, port, args), daemon=True
        )
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    try:
        return _collect(answers, processes, timeout_s)
    finally:
        for process in processes:
            process.join(2.0)
            if process.is_alive():
                process.kill()
                process.join()


def _collect(
    answers: Any, processes: list[Any], timeout_s: float
) -> list[Any]:  # Any: multiprocessing's types
    results: dict[int, object] = {}
    end = time.monotonic() + timeout_s
    while len(results) < len(processes):
        try:
            rank, result, problem = answers.get(timeout=0.5)
        except queue.Empty:
            dead = [r for r, p in enumerate(processes) if r not in results and p.exitcode not in (None, 0)]
            if dead:
                codes = [processes[r].exitcode for r in dead]
                raise RankFailure(f"ranks {dead} died with exit codes {codes}") from None
            if time.monotonic() > end:
                silent = [r for r in range(len(processes)) if r not in results]
                raise RankFailure(f"ranks {silent} did not finish within {timeout_s} s") from None
            continue
        if problem is not None:
            raise RankFailure(f"rank {rank} raised:\n{problem}")
        results[rank] = pickle.loads(result)
    return [results[rank] for rank in range(len(processes))]


def _run(
    answers: Any,  # Any: a multiprocessing queue
    file: str,
    name: str,
    rank: int,
    world_size: int,
    port: int,
    args: tuple[object, ...],
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    try:
        module_name = f"_ranks_{Path(file).stem}"
        spec = importlib.util.spec_from_file_location(module_name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        # Pickled here: multiprocessing's own way shares tensors' memory, which ends with this process.
        answers.put((rank, pickle.dumps(getattr(module, name)(rank, world_size, port, *args)), None))
    except BaseException:  # noqa: BLE001  # told to the parent, whatever it is
        answers.put((rank, None, traceback.format_exc()))
    answers.close()
    answers.join_thread()
    # Groups of torch.distributed would wait for peers while the interpreter ends.
    os._exit(0)
