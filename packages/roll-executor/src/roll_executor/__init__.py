"""One distributed role behind one object: clusters of workers, on Ray or in this process."""

from roll_executor.cluster import Cluster
from roll_executor.errors import (
    BindingError,
    CallTimeoutError,
    ClusterClosedError,
    ConfigError,
    ExecutorError,
    TransferError,
    Where,
    WorkerClassError,
    WorkerColdError,
    WorkerDiedError,
    WorkerError,
    WorkerRaisedError,
    WorkerStartError,
)
from roll_executor.parallel import create_clusters
from roll_executor.pending import PendingResult
from roll_executor.replay import RecordError, replay
from roll_executor.stats import MethodStats
from roll_executor.stream import ResultStream
from roll_executor.transfer import OBJECT_STORE, Transfer, TransferBackend, transfer_backends
from roll_executor.transport import Answer, ClusterTransport
from roll_executor.worker import Worker
from roll_executor.worker_config import WorkerConfig
from roll_executor.workers import Health

__all__ = [
    "OBJECT_STORE",
    "Answer",
    "BindingError",
    "CallTimeoutError",
    "Cluster",
    "ClusterClosedError",
    "ClusterTransport",
    "ConfigError",
    "ExecutorError",
    "Health",
    "MethodStats",
    "PendingResult",
    "RecordError",
    "ResultStream",
    "Transfer",
    "TransferBackend",
    "TransferError",
    "Where",
    "Worker",
    "WorkerClassError",
    "WorkerColdError",
    "WorkerConfig",
    "WorkerDiedError",
    "WorkerError",
    "WorkerRaisedError",
    "WorkerStartError",
    "create_clusters",
    "replay",
    "transfer_backends",
]
