"""What the executor asks of torch around a call."""

import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist

from roll_protocol import DataProto
from roll_strategies.call_hooks import TorchCallHooks
from roll_strategies.connections import watched_connections
from roll_strategies.testing import run_ranks

CPU = SimpleNamespace(device_type="cpu")


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_the_random_state_comes_back_for_every_generator() -> None:
    hooks = TorchCallHooks()
    state = hooks.random_state()
    first = draws()
    assert draws() != first
    hooks.set_random_state(state)
    assert draws() == first


def test_arguments_move_only_when_they_are_prefetched() -> None:
    hooks = TorchCallHooks()
    batch = DataProto.from_single_dict({"x": torch.ones(2)})
    meta = SimpleNamespace(device_type="meta")
    args, kwargs = hooks.before_call(meta, "f", False, (batch, 3), {"y": torch.ones(1)})
    assert args[0] is batch
    args, kwargs = hooks.before_call(meta, "f", True, (torch.ones(2), 3), {"y": torch.ones(1)})
    assert isinstance(args[0], torch.Tensor)
    assert isinstance(kwargs["y"], torch.Tensor)
    assert (args[0].device.type, kwargs["y"].device.type, args[1]) == ("meta", "meta", 3)
    hooks.after_call(CPU, "f", True)
    hooks.start_worker(CPU)
    assert torch.get_num_threads() == 1


def wait_for_a_silent_peer(rank: int, world_size: int, port: int, sign: str) -> str:
    with watched_connections():
        where = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world_size)
    if rank == 1:
        # Alive, connected, and not taking part.
        while not Path(sign).exists():
            time.sleep(0.05)
        return "silent"
    threading.Timer(0.5, TorchCallHooks().abort, [CPU]).start()
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError:
        return "released"
    finally:
        Path(sign).touch()
    return "reduced"


def test_aborting_releases_a_rank_that_waits_for_a_silent_peer(tmp_path: Path) -> None:
    sign = str(tmp_path / "sign")
    assert run_ranks(wait_for_a_silent_peer, 2, sign, timeout_s=90) == ["released", "silent"]
