"""The target of weight updates whose tensors live inside an engine."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from roll_strategies.memory import Bytes
from roll_strategies.weights.manifest import Bucket, ParameterSpec, dtype_of
from roll_strategies.weights.plan import named_state
from roll_strategies.weights.receiver import WeightReceiver
from roll_strategies.weights.target import UpdateTarget

Load = Callable[[Sequence[tuple[str, Tensor]]], None]
"""Takes whole parameters by their names in a checkpoint."""


class EngineReceiver(WeightReceiver):
    """Checks an update as every receiver does, and hands its parameters on bucket by bucket.

    Args:
        named: tensors without memory that have the names and shapes of the model in a checkpoint.
        rank: this target's rank.
        digest: `sampled` or `full`.
        load: takes the checked parameters of a bucket.
    """

    def __init__(self, named: Mapping[str, Tensor], *, rank: int, digest: str, load: Load) -> None:
        super().__init__(named, rank=rank, digest=digest)
        self._hand_on = load
        self._held: list[tuple[str, Tensor]] = []

    def put(self, bucket: Bucket, arrived: Callable[[int, int], Bytes]) -> int:
        """Checks the parameters of a bucket and hands them on."""
        self._held = []
        try:
            taken = super().put(bucket, arrived)
            self._hand_on(self._held)
        finally:
            self._held = []
        return taken

    def _load(self, spec: ParameterSpec, part: Bytes, digest: int) -> int:
        # A copy: the bytes are lent for this call, and the engine keeps tensors until a layer is complete.
        flat = part.clone() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
        self._held.append((spec.name, flat.view(dtype_of(spec.dtype)).reshape(spec.shape)))
        return digest


class EngineTarget(UpdateTarget):
    """The target methods of a strategy whose model lives inside an engine.

    Args:
        skeleton: the model without memory, for the names and shapes that an update must bring.
        rank: this worker's rank.
        digest: `sampled` or `full`.
        load: takes the checked parameters of a bucket.
    """

    def __init__(self, skeleton: nn.Module, *, rank: int, digest: str, load: Load) -> None:
        super().__init__(skeleton, rank=rank, digest=digest)
        self._receiver = EngineReceiver(named_state(skeleton), rank=rank, digest=digest, load=load)
