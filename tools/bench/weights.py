"""How fast weights travel: an update against a bare `dist.broadcast` of the same bytes, and its memory.

Run it as `python tools/bench/weights.py [--megabytes 256] [--bucket 32] [--transport colocated]`.

Both sides take turns, so that a busy machine slows both.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Listener
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from roll_strategies import Transport, UpdateTarget, WeightSender, named_state
from roll_strategies.testing import free_port, run_ranks
from roll_strategies.weights.collective import BroadcastTransport  # a transport under test
from roll_strategies.weights.colocated import ColocatedTransport  # a transport under test

MB = 1024 * 1024
ROUNDS = 8


class Pipes:
    """Messages to processes that run `serve`; stands in for the executor's transport."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._pipes = [_connected(port) for port in ports]

    def send(self, method: str, payload: object) -> "Replies":
        """Calls a method on every target."""
        for pipe in self._pipes:
            pipe.send((method, payload))
        return Replies(self._pipes)

    def finish(self) -> None:
        """Ends `serve` on every target."""
        for pipe in self._pipes:
            pipe.send(None)


class Replies:
    """The answers of `Pipes`."""

    def __init__(self, pipes: Sequence[Any]) -> None:  # Any: connections
        self._pipes = pipes

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Returns one answer per target."""
        return [pipe.recv() for pipe in self._pipes]


def _connected(port: int) -> Any:  # Any: a connection
    for _ in range(600):
        try:
            return Client(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise RuntimeError(f"nobody listens on port {port}")


def serve(target: UpdateTarget, pipe: Any) -> None:
    """Answers messages until one is None."""
    while (message := pipe.recv()) is not None:
        method, payload = message
        pipe.send(getattr(target, method)(payload))


def model_of(megabytes: int) -> nn.Module:
    """Returns parameters of about 4 MiB each, and a small one beside each of them, as in a transformer."""
    layers: list[nn.Module] = []
    for _ in range(max(1, megabytes // 4)):
        layers += [nn.Linear(1024, 1024, bias=False), nn.LayerNorm(1024)]
    return nn.Sequential(*layers)


def peak_mb() -> float:
    """Returns the largest resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(
    rank: int,
    world_size: int,
    port: int,
    megabytes: int,
    bucket: int,
    ports: list[int],
    way: str,
) -> dict[str, float]:
    """Times a bare broadcast and an update by turns; rank 0 sends."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    model = model_of(megabytes)
    total = sum(p.numel() * 4 for p in model.parameters())
    same = torch.zeros(total, dtype=torch.uint8)  # as many bytes, so that caches help neither side

    def broadcast() -> float:
        dist.barrier()
        started = time.perf_counter()
        for piece in torch.split(same, bucket * MB):
            dist.broadcast(piece, src=0)
        dist.barrier()
        return time.perf_counter() - started

    bare = [broadcast()]
    before = peak_mb()
    if rank > 0:
        target = UpdateTarget(model, rank=rank - 1)
        with Listener(("127.0.0.1", ports[rank - 1])) as listener, listener.accept() as pipe:
            for _ in range(ROUNDS + 1):
                serve(target, pipe)
                broadcast()
        return {"peak_extra_mb": peak_mb() - before}
    pipes = Pipes(ports)
    transport: Transport = pipes
    if way == "broadcast":
        transport = BroadcastTransport(pipes, name="bench", addr="127.0.0.1")
    elif way == "colocated":
        transport = ColocatedTransport(pipes, device=torch.device("cpu"))
    sender = WeightSender(transport=transport, bucket_bytes=bucket * MB)
    ours = []
    for version in range(ROUNDS + 1):
        started = time.perf_counter()
        sender.send(named_state(model), version=version)
        ours.append(time.perf_counter() - started)
        pipes.finish()
        bare.append(broadcast())
    extra = peak_mb() - before
    ours, bare = ours[1:], bare[1:]  # the first round opens the group
    return {
        "megabytes": total / MB,
        "bare_s": min(bare),
        "update_s": min(ours),
        "update_median_s": statistics.median(ours),
        "bare_gb_per_s": total / min(bare) / 1e9,
        "update_gb_per_s": total / min(ours) / 1e9,
        "ratio": min(ours) / min(bare),
        "median of ratios": statistics.median(a / b for a, b in zip(ours, bare, strict=False)),
        "peak_extra_mb": extra,
    }


def main() -> None:
    """Prints one line per number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--bucket", type=int, default=32, help="MiB")
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--transport", default="broadcast", choices=("broadcast", "colocated", "messages"))
    args = parser.parse_args()
    ports = [free_port() for _ in range(args.targets)]
    settings = (args.megabytes, args.bucket, ports, args.transport)
    found = run_ranks(measure, args.targets + 1, *settings, timeout_s=600)
    for name, value in found[0].items():
        print(f"{name:20} {value:10.3f}")
    print(f"{'target peak_extra_mb':20} {max(entry['peak_extra_mb'] for entry in found[1:]):10.3f}")


if __name__ == "__main__":
    main()
