import pytest

from roll_dispatch import (
    Dispatch,
    RegisterError,
    Split,
    SplitError,
    Topology,
    plan_call,
    register_splittable,
    split,
)

TWO = Topology.data_parallel(2)
COMPUTE = Dispatch.DP_MP_COMPUTE


class Table:
    """A type of somebody else, which knows nothing of rows."""

    def __init__(self, columns: dict[str, list[int]]) -> None:
        self.columns = columns


class SubTable(Table):
    """A subclass of it."""


def teach() -> None:
    """Teach the splitting of tables."""
    register_splittable(
        Table,
        length=lambda table: len(table.columns["x"]),
        cut=lambda table, start, stop: Table({k: v[start:stop] for k, v in table.columns.items()}),
        take=lambda table, rows: Table({k: [v[r] for r in rows] for k, v in table.columns.items()}),
        concat=lambda parts: Table({k: [x for p in parts for x in p.columns[k]] for k in parts[0].columns}),
    )


@pytest.mark.parametrize("cls", [Table, SubTable])
def test_a_registered_type_and_its_subclasses_are_cut_and_joined_as_taught(cls: type[Table]) -> None:
    teach()
    call = plan_call(COMPUTE, TWO, (cls({"x": [1, 2, 3]}),))
    parts = [part[0][0] for part in call.parts if part is not None]
    assert [part.columns for part in parts] == [{"x": [1, 2]}, {"x": [3]}]
    joined = call.collect(parts)
    assert isinstance(joined, Table)
    assert joined.columns == {"x": [1, 2, 3]}


def test_a_registered_type_is_picked_from_and_padded_as_taught() -> None:
    teach()
    rows = Table({"x": [5, 6, 7]})
    call = plan_call(Dispatch.balanced(lambda table: table.columns["x"]), TWO, (rows,))
    assert [part[0][0].columns for part in call.parts if part is not None] == [
        {"x": [6, 5][::-1]},
        {"x": [7]},
    ]
    padded = plan_call(COMPUTE.with_options(pad=True), TWO, (rows,))
    assert [part[0][0].columns for part in padded.parts if part is not None] == [{"x": [5, 6]}, {"x": [7, 5]}]


def test_ranks_without_rows_receive_the_header_as_taught() -> None:
    class Log:
        def __init__(self, lines: list[str]) -> None:
            self.lines = lines

        def __len__(self) -> int:
            return len(self.lines)

        def __getitem__(self, rows: slice) -> "Log":
            return Log(self.lines[rows])

    one = Topology.from_sizes(2, tp=2)
    join = lambda parts: Log([line for part in parts for line in part.lines])  # noqa: E731  # used twice below
    register_splittable(Log, concat=join)
    assert [p[0][0].lines for p in split(Dispatch.DP_MP_DISPATCH_FIRST, one, Log(["a"])) if p] == [["a"], []]
    register_splittable(Log, concat=join, header=lambda log: Log(["header"]))
    assert [p[0][0].lines for p in split(Dispatch.DP_MP_DISPATCH_FIRST, one, Log(["a"])) if p] == [
        ["a"],
        ["header"],
    ]


def test_a_registered_type_without_a_cut_is_sliced_and_indexed() -> None:
    register_splittable(range, concat=lambda parts: range(parts[0].start, parts[-1].stop))
    call = plan_call(COMPUTE, TWO, (range(5),))
    assert [part[0][0] for part in call.parts if part is not None] == [range(3), range(3, 5)]
    assert call.collect([range(3), range(3, 5)]) == range(5)


@pytest.mark.parametrize("cls", [list, dict, str, tuple, bytes, int, object, type(None), "Table"])
def test_types_whose_rule_is_fixed_cannot_be_registered(cls: type[object]) -> None:
    with pytest.raises(RegisterError, match="register_splittable takes a type of your own, not"):
        register_splittable(cls, concat=lambda parts: parts[0])


class Array:
    """What the array libraries have in common: shape, slices, indices, and a protocol to join by."""

    def __init__(self, items: list[int], *, scalar: bool = False) -> None:
        self.items = items
        self.shape = () if scalar else (len(items),)

    def __getitem__(self, rows: slice | list[int]) -> "Array":
        return type(self)(self.items[rows] if isinstance(rows, slice) else [self.items[r] for r in rows])

    def __len__(self) -> int:
        return len(self.items)

    def chunk(self, parts: int) -> "list[Array]":
        raise AssertionError("arrays are cut by the bounds that all arguments share")

    def __array_namespace__(self) -> type["Namespace"]:
        return Namespace


class Namespace:
    """The array API's namespace."""

    @staticmethod
    def concat(parts: list[Array]) -> Array:
        return Array([item for part in parts for item in part.items])


def test_arrays_are_cut_by_bounds_and_joined_by_their_own_namespace() -> None:
    call = plan_call(COMPUTE, Topology.data_parallel(3), (Array([1, 2, 3, 4]),))
    parts = [part[0][0] for part in call.parts if part is not None]
    assert [part.items for part in parts] == [[1, 2], [3], [4]]
    joined = call.collect(parts)
    assert isinstance(joined, Array)
    assert joined.items == [1, 2, 3, 4]


def test_arrays_are_picked_from_by_indices_and_have_an_empty_header() -> None:
    balanced = split(Dispatch.balanced(lambda array: array.items), TWO, Array([9, 1, 1, 9]))
    assert sorted(sorted(part[0][0].items) for part in balanced if part) == [[1, 9], [1, 9]]
    first = split(Dispatch.DP_MP_DISPATCH_FIRST, Topology.from_sizes(2, tp=2), Array([3]))
    assert [part[0][0].items for part in first if part] == [[3], []]


def test_an_array_without_dimensions_goes_whole_to_every_rank() -> None:
    scalar = Array([5], scalar=True)
    assert [part[0][0] for part in split(COMPUTE, TWO, scalar) if part] == [scalar, scalar]
    with pytest.raises(SplitError, match="which has no rows"):
        split(COMPUTE, TWO, Split(scalar))


def test_a_shape_alone_makes_no_array() -> None:
    class Frame:
        shape = (2, 2)

        def __len__(self) -> int:
            return 2

        def __getitem__(self, rows: object) -> object:
            raise AssertionError("a data frame picks columns by indices")

    with pytest.raises(SplitError, match="a Frame has a length but no rule"):
        split(COMPUTE, TWO, Frame())
