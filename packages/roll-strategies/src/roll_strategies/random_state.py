"""The state of every generator that a process draws from, as plain numbers and tensors."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


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
        "torch": torch.get_rng_state(),
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
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
