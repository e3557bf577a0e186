"""Weights in memory that source and target share."""

import dataclasses
import gc
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roll_strategies import Bucket, UpdateTarget, WeightSender, WeightSyncError, named_state
from roll_strategies.testing import DirectTransport, free_port, run_ranks
from roll_strategies.weights.colocated import ColocatedTransport, opened
from roll_strategies.weights.manifest import SharedSpace


def some_model(seed: int) -> nn.Module:
    """Returns tensors of several dtypes and sizes, one of them larger than the rest together."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(300, 200), nn.LayerNorm(7), nn.Linear(3, 5, bias=False).to(torch.bfloat16)
    )
    model.register_buffer("flags", torch.rand(9) > 0.5)
    model.register_buffer("counts", torch.randint(0, 99, (3, 2)))
    return model


class Pipes:
    """Messages to processes that `serve`."""

    def __init__(self, pipes: list[Any]) -> None:  # Any: connections
        self.pipes = pipes

    def send(self, method: str, payload: object) -> "Pipes":
        for pipe in self.pipes:
            pipe.send((method, payload))
        return self

    def result(self, timeout_s: float | None = None) -> list[object]:
        answers = [pipe.recv() for pipe in self.pipes]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def serve(target: UpdateTarget, pipe: "Connection[Any, Any]") -> None:
    while (message := pipe.recv()) is not None:
        method, payload = message
        assert not isinstance(payload, Bucket) or payload.data is None
        try:
            pipe.send(getattr(target, method)(payload))
        except WeightSyncError as error:
            pipe.send(error)


def connected(port: int) -> Any:  # Any: a connection
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return Client(("127.0.0.1", port))
        except ConnectionRefusedError:
            os.sched_yield()  # the other process is still on its way
    raise AssertionError(f"nobody listens at port {port}")


def open_spaces() -> int:
    """Returns how many files of shared memory this process holds open."""
    files = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum("roll-weights" in os.readlink(file) for file in files if file.is_symlink())


def ends(rank: int, world_size: int, port: int, ports: list[int]) -> list[dict[str, Tensor]]:
    """Rank 0 sends to the others with buckets of every size; each returns what it holds after each update."""
    model = some_model(rank)
    if rank > 0:
        held = []
        target = UpdateTarget(model, rank=rank - 1, digest="full")
        with Listener(("127.0.0.1", ports[rank - 1])) as listener, listener.accept() as pipe:
            for _ in SIZES:
                serve(target, pipe)
                held.append({name: value.detach().clone() for name, value in named_state(model).items()})
                pipe.send("kept")
        return held
    pipes = Pipes([connected(number) for number in ports])
    transport = ColocatedTransport(pipes, device=torch.device("cpu"))
    sent = []
    for version, size in enumerate(SIZES):
        for parameter in model.parameters():
            parameter.data.add_(version)
        WeightSender(transport=transport, bucket_bytes=size, digest="full").send(
            named_state(model), version=version
        )
        sent.append({name: value.detach().clone() for name, value in named_state(model).items()})
        for pipe in pipes.pipes:
            pipe.send(None)
        assert pipes.result() == ["kept"] * len(ports)
        assert open_spaces() == 0, "shared memory was not given back"
    return sent


SIZES = [1, 4096, 10**9]


def test_targets_in_other_processes_hold_what_was_sent_with_buckets_of_any_size() -> None:
    sent, *held = run_ranks(ends, 3, [free_port(), free_port()])
    for theirs in held:
        for mine, other in zip(sent, theirs, strict=True):
            assert all(torch.equal(other[name], value) for name, value in mine.items())


def test_memory_that_is_not_here_is_refused_and_the_old_weights_stay() -> None:
    def elsewhere(index: int, method: str, payload: object) -> object:
        if not isinstance(payload, Bucket):
            return payload
        assert payload.shared is not None
        path, _, _ = payload.shared.key.partition("|")
        return dataclasses.replace(
            payload, shared=dataclasses.replace(payload.shared, key=f"{path}|/other/file", host="node-7")
        )

    model = some_model(0)
    before = {name: value.detach().clone() for name, value in named_state(model).items()}
    target = UpdateTarget(model, rank=3)
    control = DirectTransport([target], spoil=elsewhere)
    transport = ColocatedTransport(control, device=torch.device("cpu"))
    with pytest.raises(
        WeightSyncError, match=r"put of bucket 0.*rank 3 .*cannot open memory .*'node-7'.*one mach"
    ):
        WeightSender(transport=transport, bucket_bytes=4096).send(named_state(some_model(1)), version=1)
    assert control.sent[-1] == "abort_update"
    assert open_spaces() == 0
    target.require_whole()
    assert all(torch.equal(value, before[name]) for name, value in named_state(model).items())


def test_a_device_that_this_process_does_not_see_is_refused() -> None:
    space = SharedSpace(key="k", host="node-7", num_bytes=4, device="cuda GPU-1", handle=b"")
    with pytest.raises(
        WeightSyncError, match=r"need both on the device 'cuda GPU-1'; set strategy_config\.update_"
    ):
        opened(space, rank=0)


def test_a_source_that_ends_in_the_middle_leaves_no_memory_behind() -> None:
    transport = ColocatedTransport(DirectTransport([]), device=torch.device("cpu"))
    transport.space(1000)
    assert open_spaces() == 1
    assert not [entry for entry in Path("/dev/shm").iterdir() if "roll-weights" in entry.name]
    del transport
    gc.collect()
    assert open_spaces() == 0
