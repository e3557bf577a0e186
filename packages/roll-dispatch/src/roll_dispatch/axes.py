"""The axes on which a rank has a coordinate."""

from roll_dispatch.rank_info import RankInfo

AXES = ("dp", "tp", "pp", "cp")
"""The four axes that place a rank: their sizes multiply to the world size."""

ALL_AXES = (*AXES, "ep")
"""Those four, and the expert axis, which lies over dp x cp."""


def coordinate(info: RankInfo, axis: str) -> int:
    """Return where a rank stands on an axis."""
    value: int = getattr(info, f"{axis}_rank")
    return value


def axis_size(info: RankInfo, axis: str) -> int:
    """Return the size of an axis, as a rank tells it."""
    value: int = getattr(info, f"{axis}_size")
    return value


def place(info: RankInfo, axes: tuple[str, ...] = AXES) -> tuple[int, ...]:
    """Return where a rank stands on some axes."""
    return tuple(coordinate(info, axis) for axis in axes)
