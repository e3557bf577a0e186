"""Measure DataProto against plain arrays, torch and tensordict, and print a table of ratios.

Usage: python tools/bench/protocol.py [--ray] [--rounds 60]

Both sides of a line take turns in one process, so that a busy machine slows both; a ratio is the best time of
one over the best time of the other. Exits 1 when a ratio is over its limit.
"""

import argparse
import os
import pickle
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import tensordict
import torch
from tensordict import TensorDict

from roll_protocol import DataProto, object_array

ROWS, TOKENS = 512, 2048
Thunk = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table."""

    name: str
    against: str
    ours: Thunk
    theirs: Thunk
    limit: float
    rounds: int = 1
    """How many times the usual number of rounds it is measured."""


def make_columns() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return eight tensor columns of about 46 MB together and three object columns."""
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, TOKENS)
    tensors = {
        "input_ids": torch.randint(0, 2**15, shape, generator=generator),
        "position_ids": torch.arange(TOKENS).repeat(ROWS, 1),
        "responses": torch.randint(0, 2**15, shape, generator=generator),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
        "response_mask": torch.rand(shape, generator=generator) > 0.5,
        "old_log_probs": torch.randn(shape, generator=generator),
        "ref_log_probs": torch.randn(shape, generator=generator),
        "rewards": torch.randn(ROWS, generator=generator),
    }
    objects = {
        "prompt": object_array([f"question {row}: what is {row} and {row}?" for row in range(ROWS)]),
        "domain": object_array(["math" if row % 2 else "code" for row in range(ROWS)]),
        "answer": object_array([{"value": row, "unit": "m"} for row in range(ROWS)]),
    }
    return tensors, objects


def through_pickle(value: object) -> object:
    """Send a value as Ray does: protocol 5 with the buffers beside the stream."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=buffers)


def batch_lines() -> Iterator[Line]:
    tensors, objects = make_columns()
    batch = DataProto.from_dict(tensors, objects, {"metrics": {"loss": 1.0}, "step": 3})
    plain: dict[str, Any] = {**{name: tensor.numpy() for name, tensor in tensors.items()}, **objects}
    td = TensorDict(tensors, batch_size=[ROWS])
    chunks, order = batch.chunk(8), torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    cuts = [
        {name: column[part * 64 : part * 64 + 64] for name, column in tensors.items()} for part in range(8)
    ]
    object_cuts = [
        {name: column[part * 64 : part * 64 + 64] for name, column in objects.items()} for part in range(8)
    ]
    names = list(tensors)[:4]

    def torch_concat() -> object:
        joined = {name: torch.cat([cut[name] for cut in cuts]) for name in tensors}
        return joined, {name: np.concatenate([cut[name] for cut in object_cuts]) for name in objects}

    def torch_pick() -> object:
        index = order.numpy()
        picked = {name: column.index_select(0, order) for name, column in tensors.items()}
        return picked, {name: column.take(index) for name, column in objects.items()}

    yield Line(
        name="pickle 5, dumps and loads",
        against="dict of NumPy arrays",
        ours=lambda: through_pickle(batch),
        theirs=lambda: through_pickle(plain),
        limit=3,
    )
    yield Line(
        name="chunk(8)",
        against="TensorDict",
        ours=lambda: batch.chunk(8),
        theirs=lambda: td.chunk(8),
        limit=2,
    )
    yield Line(name="slice", against="TensorDict", ours=lambda: batch[3:99], theirs=lambda: td[3:99], limit=2)
    yield Line(name="row", against="TensorDict", ours=lambda: batch[7], theirs=lambda: td[7], limit=2)
    yield Line(
        name="select 4 columns",
        against="TensorDict",
        ours=lambda: batch.select(names, []),
        theirs=lambda: td.select(*names),
        limit=2,
    )
    yield Line(
        name="concat of 8",
        against="torch.cat",
        ours=lambda: DataProto.concat(chunks),
        theirs=torch_concat,
        limit=1.2,
    )
    yield Line(
        name="select_idxs",
        against="index_select",
        ours=lambda: batch.select_idxs(order),
        theirs=torch_pick,
        limit=1.2,
    )
    yield Line(
        name="make_iterator(64)",
        against="slices",
        ours=lambda: list(batch.make_iterator(64)),
        theirs=lambda: [batch[start : start + 64] for start in range(0, ROWS, 64)],
        limit=1.2,
        rounds=3,
    )


def group_lines() -> Iterator[Line]:
    rows = 20_000
    for groups in (10, 100):
        keys = torch.randint(0, groups, (rows,), generator=torch.Generator().manual_seed(2))
        batch = DataProto.from_single_dict({"group": keys, "reward": torch.randn(rows)})

        def theirs(keys: torch.Tensor = keys) -> object:
            return torch.unique(keys, return_inverse=True)

        def ours(batch: DataProto = batch) -> object:
            return batch.group_by("group")

        yield Line(
            name=f"group_by, {groups} of 20,000 rows",
            against="torch.unique",
            ours=ours,
            theirs=theirs,
            limit=5,
            rounds=3,
        )


def object_lines() -> Iterator[Line]:
    rows = 100_000
    column = object_array([f"text {row}" for row in range(rows)])
    batch = DataProto.from_single_dict({"o": column})
    parts, arrays = batch.chunk(8), np.array_split(column, 8)
    order = np.random.default_rng(0).permutation(rows)
    against = "NumPy"
    td = TensorDict({"x": torch.zeros(rows)}, batch_size=[rows])
    yield Line(
        name="100,000 objects: concat",
        against=against,
        ours=lambda: DataProto.concat(parts),
        theirs=lambda: np.concatenate(arrays),
        limit=1.5,
    )
    yield Line(
        name="100,000 objects: select_idxs",
        against=against,
        ours=lambda: batch.select_idxs(order),
        theirs=lambda: column.take(order),
        limit=1.5,
    )
    yield Line(
        name="100,000 objects: repeat(2)",
        against=against,
        ours=lambda: batch.repeat(2),
        theirs=lambda: column.repeat(2),
        limit=3,
    )
    yield Line(
        name="100,000 objects: chunk(8), 1 column",
        against="TensorDict, 1 tensor",
        ours=lambda: batch.chunk(8),
        theirs=lambda: td.chunk(8),
        limit=2,
    )


def ray_lines() -> Iterator[Line]:
    import ray

    columns = {f"c{place}": torch.ones(4096, 2048) for place in range(8)}
    batch = DataProto.from_single_dict(columns)
    plain = {name: column.numpy() for name, column in columns.items()}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=1200 * 2**20)
    yield Line(
        name="ray.put and ray.get, 268 MB",
        against="dict of NumPy arrays",
        ours=lambda: ray.get(ray.put(batch)),
        theirs=lambda: ray.get(ray.put(plain)),
        limit=1.2,
    )
    ray.shutdown()


def best_ms(line: Line, rounds: int) -> tuple[float, float]:
    """Return the best time of each side, taking turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds * line.rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            thunk = line.theirs if side else line.ours
            start = time.perf_counter()
            result = thunk()
            times[side].append(time.perf_counter() - start)
            del result
    return min(times[0]) * 1e3, min(times[1]) * 1e3


def slice_bytes() -> tuple[int, int]:
    """Return the pickled size of an eighth of the batch, and the size of the data in it."""
    batch = DataProto.from_dict(*make_columns())
    part = batch.chunk(8)[3]
    return len(pickle.dumps(part)), part.nbytes


def print_facts() -> None:
    """Say on what machine and with which libraries this runs."""
    batch = DataProto.from_dict(*make_columns())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, 1 thread"
    )
    print(f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, ", end="")
    print(f"tensordict {tensordict.__version__}")
    print(f"batch: {batch.nbytes / 1e6:.1f} MB, {ROWS} x {TOKENS}, 8 tensor and 3 object columns\n")


def print_line(name: str, ours: str, against: str, theirs: str, ratio: float, limit: float) -> bool:
    """Print one line of the table and tell whether it is within its limit."""
    print(f"| {name} | {ours} | {against} | {theirs} | {ratio:.2f} | {limit:g} |", flush=True)
    return ratio <= limit


def main() -> int:
    """Print the table and return 1 when a line is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", action="store_true", help="measure ray.put and ray.get too")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print_facts()
    print("| operation | ours, ms | against | theirs, ms | ratio | limit |")
    print("|---|---|---|---|---|---|")
    good = []
    for lines in (batch_lines, group_lines, object_lines, *([ray_lines] if options.ray else [])):
        for line in lines():
            ours, theirs = best_ms(line, options.rounds)
            ratio = ours / theirs
            good.append(
                print_line(line.name, f"{ours:.3f}", line.against, f"{theirs:.3f}", ratio, line.limit)
            )
    pickled, data = slice_bytes()
    sizes = f"{pickled / 1e6:.2f} MB", f"{data / 1e6:.2f} MB"
    good.append(print_line("pickled 1/8 slice", sizes[0], "data in it", sizes[1], pickled / data, 1.2))
    print(f"\n{good.count(False)} of {len(good)} over the limit")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
