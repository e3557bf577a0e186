"""Measure splitting and joining against the bare list operations that any dispatch must do.

Usage: python tools/bench/dispatch.py [--rows 100000] [--repeats 41]

Times are medians and wander with the load of the machine; the ratios are what to read. Both sides of a
ratio are timed in turn, so that a slow moment hits both.
"""

import argparse
import gc
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import perf_counter

from roll_dispatch import Dispatch, Topology, balance, collect, plan_call, plan_micro_batches, split

COMPUTE = Dispatch.DP_MP_COMPUTE


def bounds(rows: int, parts: int) -> list[tuple[int, int]]:
    """Return where each part starts and stops."""
    size, larger = divmod(rows, parts)
    return list(pairwise(part * size + min(part, larger) for part in range(parts + 1)))


def in_turn(ours: Callable[[], object], bare: Callable[[], object], repeats: int) -> tuple[float, ...]:
    """Return the median milliseconds of two functions run in turn, and the median of their ratios."""
    taken: list[tuple[float, float]] = []
    gc.collect()
    for turn in range(repeats):
        pair = {}
        for function in (ours, bare) if turn % 2 else (bare, ours):
            start = perf_counter()
            result = function()
            pair[function] = (perf_counter() - start) * 1e3
            del result
        taken.append((pair[ours], pair[bare]))
    mine, theirs = zip(*taken, strict=True)
    middle, bare_middle = statistics.median(mine), statistics.median(theirs)
    return middle, bare_middle, middle / bare_middle, min(mine) / min(theirs)


def bench(world_size: int, tp: int, rows: int, repeats: int) -> None:
    """Print what splitting and joining a list costs on one topology."""
    topology = Topology.from_sizes(world_size, tp=tp)
    numbers = list(range(rows))
    dp_of = [info.dp_rank for info in topology]
    parts = split(COMPUTE, topology, numbers)
    answering = set(topology.collecting_ranks)
    outputs = {rank: part[0][0] for rank, part in enumerate(parts) if part is not None and rank in answering}

    def bare_split() -> object:
        pieces = [numbers[start:stop] for start, stop in bounds(rows, topology.dp_size)]
        return [pieces[dp] for dp in dp_of]

    def bare_join() -> object:
        joined: list[int] = []
        for piece in outputs.values():
            joined.extend(piece)
        return joined

    cases = {
        "split": (lambda: split(COMPUTE, topology, numbers), bare_split),
        "collect": (lambda: collect(COMPUTE, topology, outputs), bare_join),
        "both": (
            lambda: (call := plan_call(COMPUTE, topology, (numbers,)), call.collect(outputs)),
            lambda: (bare_split(), bare_join()),
        ),
    }
    for name, (ours, bare) in cases.items():
        mine, theirs, ratio, least = in_turn(ours, bare, repeats)
        where = f"{world_size:>5} ranks  tp {tp:<3} {rows:>7} rows"
        print(
            f"{where}  {name:<8}{mine:>9.3f} ms {theirs:>9.3f} ms bare  x{ratio:.2f}  (minima x{least:.2f})"
        )


def memory(world_size: int, tp: int, rows: int) -> None:
    """Print what a split holds beyond the slices themselves."""
    topology = Topology.from_sizes(world_size, tp=tp)
    numbers = list(range(rows))
    split(COMPUTE, topology, numbers)
    gc.collect()  # empties the interpreter's stock of tuples, whose reuse would not be traced
    tracemalloc.start()
    parts = split(COMPUTE, topology, numbers)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    slices = {id(part[0][0]): sys.getsizeof(part[0][0]) for part in parts if part is not None}
    beyond = held - sum(slices.values())
    where = f"{world_size:>5} ranks  tp {tp:<3} {rows:>7} rows"
    print(f"{where}  memory  {beyond / world_size:9.1f} bytes a rank beyond the slices")


def once(name: str, function: Callable[[], object]) -> None:
    """Print what one run takes."""
    start = perf_counter()
    function()
    print(f"{name:<58}{(perf_counter() - start) * 1e3:>9.1f} ms")


def main() -> None:
    """Run all measurements."""
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--rows", type=int, default=100_000)
    command.add_argument("--repeats", type=int, default=41)
    given = command.parse_args()
    for tp in (1, 8, 128):
        bench(1024, tp, given.rows, given.repeats)
        memory(1024, tp, given.rows)
    bench(8, 1, given.rows, given.repeats)
    costs = [(7919 * row) % 4093 + 1 for row in range(given.rows)]
    few = costs[:3000]
    for equal in (True, False):
        counts = "equal" if equal else "free"
        greedy = partial(balance, costs, 64, equal_counts=equal, method="greedy")
        once(f"balance {given.rows} rows in 64, {counts} counts, greedy", greedy)
        once(
            f"balance 3000 rows in 64, {counts} counts, kk",
            partial(balance, few, 64, equal_counts=equal, method="kk"),
        )
    plan = partial(plan_micro_batches, costs, dp_size=64, max_tokens=16_384)
    once(f"plan_micro_batches {given.rows} rows over 64 DP ranks", plan)


if __name__ == "__main__":
    main()
