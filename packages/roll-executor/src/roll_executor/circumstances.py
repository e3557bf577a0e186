"""What a worker's process is like before a call: enough to run the call again elsewhere."""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roll_executor.hooks import Hooks
from roll_executor.place import WorkerPlace

KEPT = (
    "CUDA_",
    "HIP_",
    "NCCL_",
    "OMP_",
    "MKL_",
    "TORCH",
    "PYTORCH",
    "PYTHONHASHSEED",
    "ROLL_",
    "HF_HUB_OFFLINE",
)
"""Starts of the names of variables that a record keeps beside those of the worker's place."""
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Parts of names of variables that a record never keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a worker tells of itself before a call that is recorded."""

    place: WorkerPlace
    environment: Mapping[str, str]
    python_random: object
    random_state: Sequence[object]


def circumstances_of(place: WorkerPlace, hooks: Hooks) -> Circumstances:
    """Return what a worker tells of itself before a call that is recorded."""
    own = set(place.environment())
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in own or name.startswith(KEPT)) and not any(part in name for part in SECRETS)
    }
    return Circumstances(
        place=place,
        environment=kept,
        python_random=random.getstate(),
        random_state=hooks.random_state(),
    )
