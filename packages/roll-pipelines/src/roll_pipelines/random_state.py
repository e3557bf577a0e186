"""The random generators of the driver: seeded, saved and restored together."""

import random
from pathlib import Path

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seeds the generators of Python, NumPy and torch in this process."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def save_random_state(path: Path) -> None:
    """Writes the state of the three generators of this process to a file."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    torch.save(
        {
            "python": (version, list(internal), gauss),
            "numpy": (
                name,
                torch.from_numpy(keys.astype(np.int64)),
                int(position),
                int(has_gauss),
                float(cached),
            ),
            "torch": torch.get_rng_state(),
        },
        path,
    )


def load_random_state(path: Path) -> None:
    """Sets the three generators of this process to what `save_random_state` wrote; runs no pickled code."""
    state = torch.load(path, weights_only=True)
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
