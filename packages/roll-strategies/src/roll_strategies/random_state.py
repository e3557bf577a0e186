"""The state of every generator that a worker draws from, as plain numbers and tensors."""

import random
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch

OWN: ContextVar[torch.Generator | None] = ContextVar("generator_of_this_thread", default=None)
"""What torch draws from on the CPU in a thread whose worker has a generator of its own; see `OwnDraws`."""


def random_state() -> dict[str, object]:
    """Returns the state of Python's, NumPy's and torch's generators; it can be saved without pickling
    classes."""
    drawn: Any = np.random.get_state(legacy=False)  # Any: NumPy types it as a union of dicts and tuples
    state: dict[str, object] = {
        "python": random.getstate(),
        "numpy": {
            **drawn,
            "state": {"key": drawn["state"]["key"].tolist(), "pos": int(drawn["state"]["pos"])},
        },
        "torch": _generator().get_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:  # Any: see random_state
    """Sets what `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    drawn = state["numpy"]
    key = np.array(drawn["state"]["key"], dtype=np.uint32)
    np.random.set_state({**drawn, "state": {"key": key, "pos": drawn["state"]["pos"]}})
    _generator().set_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_draws(seed: int) -> None:
    """Seeds every generator that the worker in this thread draws from: Python's, NumPy's and torch's.

    Args:
        seed: any integer.

    Example:
        >>> seed_draws(1)
        >>> first = torch.rand(())
        >>> seed_draws(1)
        >>> bool(torch.rand(()) == first)
        True
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    own = OWN.get()
    if own is None:
        torch.manual_seed(seed % 2**63)
    else:
        own.manual_seed(seed % 2**63)


def _generator() -> torch.Generator:
    return OWN.get() or torch.default_generator
