"""Pickling as Ray does it: what another process cannot import travels with the value."""

import pickle
from collections.abc import Callable
from typing import Any

from ray import cloudpickle


def dumps(value: object, callback: Callable[[pickle.PickleBuffer], Any]) -> bytes:
    """Return a pickle without the buffers that are handed to ``callback``."""
    found: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=callback)  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return found
