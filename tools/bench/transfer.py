"""Compare the transfer backend `files` with the object store, in one run.

Usage: python tools/bench/transfer.py [--repeats 10] [--disk FOLDER]

A batch of 64 MB is split over four workers and collected, and sent whole to all four. The ways are timed in
turn on the same workers, so that a slow moment hits all; times are medians.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter

import torch

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Transfer, Worker, WorkerConfig
from roll_protocol import DataProto
from roll_resources import ResourceManager


class Echo(Worker):
    """Returns what it gets."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def echo(self, data: DataProto) -> DataProto:
        """Return the part."""
        return data

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def read(self, data: DataProto) -> float:
        """Read every number of the whole batch."""
        return float(data.numpy("input_ids").sum())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def nothing(self) -> None:
        """Return nothing."""


def median_ms(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of functions that run in turn, the first round not counted."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, function in ways.items():
            start = perf_counter()
            result = function()
            taken[name].append((perf_counter() - start) * 1e3)
            del result
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def main() -> int:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on a disk")
    options = parser.parse_args()
    batch = DataProto.from_single_dict({"input_ids": torch.zeros(1024, 15_625, dtype=torch.float32)})
    config = WorkerConfig(name="echo", world_size=4)
    with ExitStack() as stack:
        manager = stack.enter_context(ResourceManager(num_cpus_per_node=4))
        cluster = stack.enter_context(Cluster("echo", Echo, manager, config))
        transfers: dict[str, Transfer | None] = {"object store": None}
        for name, folder in (("files in /dev/shm", "/dev/shm"), (f"files in {options.disk}", options.disk)):
            transfers[name] = stack.enter_context(Transfer("files", {"folder": folder}))

        def by(transfer: Transfer | None, method: str, *args: object) -> Callable[[], object]:
            def call() -> object:
                cluster._transfer = transfer  # the same workers for all
                return cluster.call(method, args)

            return call

        for what, method, args in (
            ("64 MB split over 4 and collected", "echo", (batch,)),
            ("64 MB read by all 4", "read", (batch,)),
            ("no-op call", "nothing", ()),
        ):
            ways = {name: by(transfer, method, *args) for name, transfer in transfers.items()}
            found = median_ms(ways, options.repeats)
            first = next(iter(found.values()))
            for name, milliseconds in found.items():
                print(f"{what:<34} {name:<20} {milliseconds:9.2f} ms   ratio {milliseconds / first:5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
