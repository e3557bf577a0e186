"""Parts of tensors that are sharded over ranks."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard


def shard_bounds(tensor: DTensor) -> tuple[int, int]:
    """Returns which rows of the whole tensor this rank holds, from first to past the last."""
    start, stop = 0, tensor.shape[0] if tensor.dim() else 0
    for axis, placement in enumerate(tensor.placements):
        if isinstance(placement, Replicate):
            continue
        assert isinstance(placement, Shard)
        assert placement.dim == 0, "FSDP shards the first dimension"
        step = -(-(stop - start) // tensor.device_mesh.size(axis))
        first = min(start + step * tensor.device_mesh.get_local_rank(axis), stop)
        start, stop = first, min(first + step, stop)
    assert not tensor.dim() or tensor.to_local().shape[0] == stop - start
    return start, stop


def copy_part(home: Tensor, full: Tensor) -> None:
    """Copies a whole tensor into one that may be sharded, of which only this rank's part is kept; the dtypes
    may differ."""
    with torch.no_grad():
        if not isinstance(home, DTensor):
            home.copy_(full)
            return
        start, stop = shard_bounds(home)
        home.to_local().copy_(full[start:stop] if home.dim() else full)
