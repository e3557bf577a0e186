"""Where the seed guide has `DataProto`."""

from roll_protocol import DataProto

__all__ = ["DataProto"]
