"""The random generators of the driver: seeded, saved and restored together."""

import random
from pathlib import Path
from typing import Any

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
    numpy: Any = np.random.get_state(legacy=False)  # Any: a nested dict of mixed values
    saved = {
        "python": (version, list(internal), gauss),
        "numpy": {
            "key": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
            "pos": int(numpy["state"]["pos"]),
            "has_gauss": int(numpy["has_gauss"]),
            "gauss": float(numpy["gauss"]),
        },
        "torch": torch.get_rng_state(),
    }
    torch.save(saved, path)


def load_random_state(path: Path) -> None:
    """Sets the three generators of this process to what `save_random_state` wrote; runs no pickled code."""
    saved = torch.load(path, weights_only=True)
    version, internal, gauss = saved["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy = saved["numpy"]
    key = numpy["key"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, numpy["pos"], numpy["has_gauss"], numpy["gauss"]))
    torch.set_rng_state(saved["torch"])
