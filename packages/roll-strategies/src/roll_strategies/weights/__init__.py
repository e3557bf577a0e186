"""Moving weights between engines: a pure plan, a protocol, and transports."""

from roll_strategies.weights.manifest import (
    Bucket,
    BucketEntry,
    CollectiveGroup,
    Manifest,
    ParameterSpec,
    UpdateReceipt,
)
from roll_strategies.weights.transport import Answer, Transport

__all__ = [
    "Answer",
    "Bucket",
    "BucketEntry",
    "CollectiveGroup",
    "Manifest",
    "ParameterSpec",
    "Transport",
    "UpdateReceipt",
]
