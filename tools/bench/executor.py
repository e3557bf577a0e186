"""Compare clusters with the same work written by hand on bare Ray, in one run.

Usage: python tools/bench/executor.py [--repeats 200] [--skip creation,parallel,...] [--ahead 16]

Both sides of a ratio are timed in turn in the same Ray, so that a slow moment hits both. Times are medians
and wander with the load of the machine; the ratios are what to read.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from time import perf_counter, sleep
from typing import Any

import numpy as np
import ray
import torch

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker, WorkerConfig, create_clusters
from roll_protocol import DataProto
from roll_resources import ResourceManager

MB = 1_000_000


class BenchWorker(Worker):
    """A worker that does nothing, quickly."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def nothing(self) -> None:
        """Return nothing."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def echo(self, data: DataProto) -> DataProto:
        """Return the batch."""
        return data

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def hold(self, data: object, seconds: float) -> None:
        """Keep the argument for a while."""
        sleep(seconds)


class LightWorker(Worker):
    """A worker whose process need not import torch, which would take longer than all that is measured."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def nothing(self) -> None:
        """Return nothing."""


class SlowWorker(Worker):
    """A worker whose constructor takes two seconds."""

    def __init__(self, worker_config: Any) -> None:  # Any: see Worker
        super().__init__(worker_config)
        sleep(2)


class BareWorker:
    """What one would write by hand."""

    def nothing(self) -> None:
        """Return nothing."""

    def echo(self, data: DataProto) -> DataProto:
        """Return the batch."""
        return data


class BareSlowWorker:
    """The same as one would write it by hand."""

    def __init__(self) -> None:
        sleep(2)

    def nothing(self) -> None:
        """Return nothing."""


class BareLightWorker:
    """The same without torch."""

    def nothing(self) -> None:
        """Return nothing."""


def bare_actors(
    count: int, kind: type = BareWorker
) -> list[Any]:  # Any: Ray's handles know no methods of ours
    """Return actors of a handwritten kind."""
    return [ray.remote(num_cpus=0)(kind).remote() for _ in range(count)]


def in_turn(
    ours: Callable[[], object], bare: Callable[[], object], repeats: int
) -> tuple[float, float, float]:
    """Return the median milliseconds of two functions run in turn, and the ratio of the medians."""
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(repeats):
        pair = [("ours", ours), ("bare", bare)]
        for name, function in pair if turn % 2 else reversed(pair):
            start = perf_counter()
            result = function()
            taken[name].append((perf_counter() - start) * 1e3)
            del result
    mine, theirs = statistics.median(taken["ours"]), statistics.median(taken["bare"])
    return mine, theirs, mine / theirs


def report(what: str, ours: float, bare: float, ratio: float, limit: float) -> None:
    """Print one line."""
    verdict = "ok" if ratio <= limit else "ABOVE"
    print(f"{what:<46} {ours:10.2f} ms {bare:10.2f} ms   ratio {ratio:5.2f}  (limit {limit:.2f}: {verdict})")


def bench_calls(manager: ResourceManager, repeats: int) -> None:
    """Time a call that does nothing and a batch that is split and collected, on four workers."""
    bare_workers = bare_actors(4)
    batch = DataProto.from_single_dict({"input_ids": torch.zeros(1024, 15_625, dtype=torch.float32)})
    with open_cluster(manager, "calls", 4) as cluster:
        cluster.nothing()
        ray.get([worker.nothing.remote() for worker in bare_workers])
        found = in_turn(
            cluster.nothing, lambda: ray.get([worker.nothing.remote() for worker in bare_workers]), repeats
        )
        report("no-op call, 4 workers", *found, limit=1.3)

        def by_hand() -> DataProto:
            parts = [ray.put(part) for part in batch.chunk(4)]
            sent = [worker.echo.remote(part) for worker, part in zip(bare_workers, parts, strict=True)]
            return DataProto.concat(ray.get(sent))

        cluster.echo(batch)
        by_hand()
        found = in_turn(lambda: cluster.echo(batch), by_hand, max(5, repeats // 20))
        report("64 MB DataProto split over 4 and collected", *found, limit=1.3)
    for worker in bare_workers:
        ray.kill(worker)


def bench_broadcast(manager: ResourceManager) -> None:
    """Count the bytes that a broadcast of 256 MB to eight workers holds in the object store."""
    with open_cluster(manager, "broadcast", 8) as cluster:
        cluster.nothing()
        before = store_used()
        pending = cluster.hold(np.zeros(256 * MB, dtype=np.uint8), 8.0, blocking=False)
        held = max((store_used() - before) / (256 * MB) for _ in range(6))
        pending.result()
    print(f"{'256 MB to 8 workers: copies in the store':<46} {held:10.2f} (limit 1.05)")


def store_used() -> float:
    """Return the bytes that are in use in the object store of this node."""
    kind = "object_store_memory"
    total = ray.cluster_resources()[kind]  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    sleep(1.0)  # the nodes report what they use about once a second
    return float(total - ray.available_resources()[kind])  # type: ignore[no-untyped-call]  # as above


def bench_creation(manager: ResourceManager, repeats: int) -> None:
    """Time the creation of four workers against that of four bare actors with a first call each."""

    def bare() -> None:
        actors = bare_actors(4, BareLightWorker)
        ray.get([actor.nothing.remote() for actor in actors])
        for actor in actors:
            ray.kill(actor)

    def ours() -> None:
        with open_cluster(manager, "created", 4, LightWorker) as cluster:
            cluster.nothing()

    bare()
    found = in_turn(ours, bare, repeats)
    report("4 workers created, called once and ended", *found, limit=1.2)


def bench_parallel(manager: ResourceManager) -> None:
    """Time eight clusters whose constructors sleep two seconds against one, and the same with bare actors.

    Ray starts a process for each beyond those that it has started ahead, one per core. Such a start takes a
    core half a second or more: with fewer than eight cores the ratio of eight to one tells of the machine,
    and that of ours to bare tells of us. ``--ahead 16`` has it start as many as a machine of sixteen cores.
    """

    def ours(count: int) -> float:
        roles = {f"slow{i}": (f"slow{i}", SlowWorker, WorkerConfig(world_size=1)) for i in range(count)}
        start = perf_counter()
        clusters = create_clusters(roles, manager)
        seconds = perf_counter() - start
        for cluster in clusters.values():
            cluster.close()
        return seconds * 1e3

    def bare(count: int) -> float:
        start = perf_counter()
        actors = bare_actors(count, BareSlowWorker)
        ray.get([actor.nothing.remote() for actor in actors])
        seconds = perf_counter() - start
        for actor in actors:
            ray.kill(actor)
        return seconds * 1e3

    ours(1)
    one, eight, one_bare, eight_bare = ours(1), ours(8), bare(1), bare(8)
    report(
        "8 clusters that sleep 2 s, against 8 bare actors", eight, eight_bare, eight / eight_bare, limit=1.2
    )
    cores = len(os.sched_getaffinity(0))
    report(f"8 clusters against 1, on {cores} core(s)", eight, one, eight / one, limit=1.5)
    report(
        f"8 bare actors against 1, on {cores} core(s)", eight_bare, one_bare, eight_bare / one_bare, limit=1.5
    )


def open_cluster(
    manager: ResourceManager, name: str, world_size: int, kind: type[Worker] = BenchWorker
) -> Cluster:
    """Return a cluster of bench workers."""
    config = WorkerConfig(name=name, world_size=world_size)
    return Cluster(name=name, worker_cls=kind, resource_manager=manager, worker_config=config)


def chosen(skip: str, repeats: int, manager: ResourceManager) -> Iterator[Callable[[], None]]:
    """Yield the benches that are not skipped."""
    benches: dict[str, Callable[[], None]] = {
        "calls": lambda: bench_calls(manager, repeats),
        "broadcast": lambda: bench_broadcast(manager),
        "creation": lambda: bench_creation(manager, 5),
        "parallel": lambda: bench_parallel(manager),
    }
    skipped = set(filter(None, skip.split(",")))
    if skipped - set(benches):
        sys.exit(f"--skip knows {', '.join(benches)}, not {', '.join(sorted(skipped - set(benches)))}")
    yield from (bench for name, bench in benches.items() if name not in skipped)


def main() -> None:
    """Run the benches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--skip", default="", help="names, joined by commas")
    parser.add_argument(
        "--ahead",
        type=int,
        help="processes that Ray starts unasked; by itself one per core",
    )
    arguments = parser.parse_args()
    ahead = {"worker_maximum_startup_concurrency": arguments.ahead} if arguments.ahead else {}
    ray.init(address="local", num_cpus=16, include_dashboard=False, log_to_driver=False, _system_config=ahead)
    with ResourceManager() as manager:
        print(f"{'':<46} {'ours':>13} {'bare':>13}")
        for bench in chosen(arguments.skip, arguments.repeats, manager):
            bench()


if __name__ == "__main__":
    main()
