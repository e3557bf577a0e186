"""Process groups and meshes: who computes with whom."""

import datetime
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # a compiled class, not listed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from roll_strategies.connections import watched_connections
from roll_strategies.context import StrategyContext
from roll_strategies.errors import StrategyConfigError
from roll_strategies.fsdp2.options import Fsdp2Options
from roll_strategies.ops.sequence import SequenceShard


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of one engine."""

    world: dist.ProcessGroup
    """All ranks."""
    mesh: DeviceMesh
    """Over which parameters are sharded: one axis, or two when groups replicate."""
    sequence: SequenceShard | None
    """Over which sequences are split."""


def join_world(context: StrategyContext) -> dist.ProcessGroup:
    """Returns the group of all ranks of the role, joining it unless this process is in it already.

    Raises:
        StrategyConfigError: this process is in another role's group.
    """
    if not dist.is_initialized():
        timeout = datetime.timedelta(seconds=context.collective_timeout_s)
        backend = (
            "gloo"
            if context.device_type == "cpu"
            else f"cpu:gloo,{context.device_type}:{context.collective_backend}"
        )
        where: dict[str, Any]  # Any: keyword arguments of init_process_group
        if context.world_size == 1:
            where = {"store": HashStore()}
        else:
            where = {"init_method": f"tcp://{context.master_addr}:{context.master_port}"}
        dist.init_process_group(
            backend, rank=context.rank, world_size=context.world_size, timeout=timeout, **where
        )
    if (dist.get_rank(), dist.get_world_size()) != (context.rank, context.world_size):
        raise StrategyConfigError(
            f"rank {context.rank} of {context.world_size} of {context.cluster_name!r} shares its process "
            "with rank "
            f"{dist.get_rank()} of another group of {dist.get_world_size()}; torch.distributed has one "
            "world a process, so "
            f"run FSDP2 roles of several workers in processes of their own (runtime: ray)"
        )
    world = dist.group.WORLD
    assert world is not None
    return world


def make_groups(context: StrategyContext, options: Fsdp2Options) -> Groups:
    """Returns the groups that the options ask for; every rank of the role calls it."""
    with watched_connections():
        return _make_groups(context, options)


def _make_groups(context: StrategyContext, options: Fsdp2Options) -> Groups:
    shard_size = options.shard_size(context.world_size)
    world = join_world(context)
    if shard_size == context.world_size:
        mesh = init_device_mesh(context.device_type, (context.world_size,), mesh_dim_names=("shard",))
    else:
        shape = (context.world_size // shard_size, shard_size)
        mesh = init_device_mesh(context.device_type, shape, mesh_dim_names=("replicate", "shard"))
    return Groups(world=world, mesh=mesh, sequence=_sequence_shard(context, options.ulysses_size))


def _sequence_shard(context: StrategyContext, size: int) -> SequenceShard | None:
    if size == 1:
        return None
    mine = None
    # new_group is collective: every rank makes every group.
    for start in range(0, context.world_size, size):
        ranks = list(range(start, start + size))
        group = dist.new_group(ranks)
        if context.rank in ranks:
            mine = group
    assert isinstance(mine, dist.ProcessGroup)
    return SequenceShard(group=mine, rank=context.rank % size, size=size)


def largest_over(group: dist.ProcessGroup, value: int) -> int:
    """Returns the largest value that any rank of the group has."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    box = torch.tensor(value, dtype=torch.int64, device=device)
    dist.all_reduce(box, op=dist.ReduceOp.MAX, group=group)
    return int(box)


def sum_over(group: dist.ProcessGroup, value: float) -> float:
    """Returns the sum of every rank's value."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    box = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(box, group=group)
    return float(box)
