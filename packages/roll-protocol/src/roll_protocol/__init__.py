"""Batches of tensors and objects that can be split, joined, checked and sent between processes."""

from roll_protocol.batch import DataProto
from roll_protocol.columns import object_array
from roll_protocol.errors import (
    ColumnError,
    ColumnNotFoundError,
    ConflictError,
    MetricError,
    ProtocolError,
    RowIndexError,
    RowMismatchError,
    SchemaError,
    StorageError,
    UnresolvedReferenceError,
)
from roll_protocol.iterator import BatchIterator
from roll_protocol.metrics import Metric, merge_metrics, reduce_metrics
from roll_protocol.padding import pad_dataproto_to_divisor, unpad_dataproto
from roll_protocol.refs import register_ref_resolver
from roll_protocol.schema import DataSchema, FieldSpec, FieldUse, field_table, field_uses

__all__ = [
    "BatchIterator",
    "ColumnError",
    "ColumnNotFoundError",
    "ConflictError",
    "DataProto",
    "DataSchema",
    "FieldSpec",
    "FieldUse",
    "Metric",
    "MetricError",
    "ProtocolError",
    "RowIndexError",
    "RowMismatchError",
    "SchemaError",
    "StorageError",
    "UnresolvedReferenceError",
    "field_table",
    "field_uses",
    "merge_metrics",
    "object_array",
    "pad_dataproto_to_divisor",
    "reduce_metrics",
    "register_ref_resolver",
    "unpad_dataproto",
]
