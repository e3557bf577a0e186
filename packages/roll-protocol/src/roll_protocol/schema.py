"""Schemas: the columns that a step needs and the ones it produces."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import SchemaError
from roll_protocol.frame import Frame

Dim = int | str
_FIELD = re.compile(r"(?P<dtype>[A-Za-z_][A-Za-z0-9_]*)(\[(?P<shape>[^\]]*)\])?(?P<optional>\?)?")
_DIM = re.compile(r"\d+|\*|\.\.\.|~?[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One column as a schema describes it.

    The short form is ``"int64[T]"``: a dtype, then the sizes after the rows. A size is a number, a name
    (equal wherever it occurs), ``*`` (any) or ``~T`` (jagged), and ``...`` at the end stands for any more
    sizes. ``any`` is any dtype, ``object`` an object column; a ``?`` at the end marks a column that may be
    absent.
    """

    dtype: str
    """Name of the dtype, or ``any``."""
    shape: tuple[Dim, ...] = ()
    """Sizes after the rows."""
    optional: bool = False
    """Whether the column may be absent."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the field that a short form describes.

        Raises:
            SchemaError: The text does not follow the form.
        """
        match = _FIELD.fullmatch(text.replace(" ", ""))
        if match is None:
            raise SchemaError(
                f"a field is written like 'int64[T]', 'float32[T,4]?' or 'object', not {text!r}"
            )
        sizes = match["shape"].split(",") if match["shape"] else []
        for place, size in enumerate(sizes):
            if not _DIM.fullmatch(size) or (size == "..." and place != len(sizes) - 1):
                raise SchemaError(
                    f"field {text!r} has a size {size!r}; a size is a number, a name, '*', '~name' or "
                    "a last '...'"
                )
        shape = tuple(int(size) if size.isdigit() else size for size in sizes)
        return cls(match["dtype"], shape, bool(match["optional"]))

    def __str__(self) -> str:
        shape = f"[{','.join(map(str, self.shape))}]" if self.shape else ""
        return f"{self.dtype}{shape}{'?' if self.optional else ''}"

    def complaint(self, column: Tensor | Array, sizes: dict[str, int]) -> str | None:
        """Return what is wrong with a column, or None; named sizes that are seen first are added to
        ``sizes``."""
        dtype = str(column.dtype).removeprefix("torch.")
        if self.dtype not in ("any", dtype):
            return f"has dtype {dtype}, not {self.dtype}"
        actual: list[Dim] = [size if isinstance(size, int) else "~" for size in column.shape[1:]]
        expected = list(self.shape)
        if expected and expected[-1] == "...":
            expected.pop()
            actual = actual[: len(expected)]
        if len(actual) != len(expected):
            return f"has row shape {actual}, which is not {list(self.shape)}"
        for want, have in zip(expected, actual, strict=True):
            if want == "*" or (isinstance(want, str) and want.startswith("~") and have == "~"):
                continue
            if have == "~" or (isinstance(want, str) and want.startswith("~")):
                return f"has row shape {actual}, which is not {list(self.shape)}"
            assert isinstance(have, int)
            known = want if isinstance(want, int) else sizes.setdefault(want, have)
            if have != known:
                name = f"{want} = {known}" if isinstance(want, str) else str(want)
                return f"has row shape {actual}, where {list(self.shape)} asks for {name}"
        return None


def _fields(fields: Mapping[str, str | FieldSpec] | None) -> dict[str, FieldSpec]:
    return {
        name: field if isinstance(field, FieldSpec) else FieldSpec.parse(field)
        for name, field in (fields or {}).items()
    }


class DataSchema:
    """What one step needs and what it produces.

    Args:
        step: Name of the step, for messages and tables.
        needs: Columns that the step reads, in the short form of FieldSpec.
        produces: Columns that it writes.

    Example:
        >>> schema = DataSchema("train", needs={"input_ids": "int64[T]", "attention_mask": "any[T]"})
        >>> schema.validate(batch)
        {'T': 2048}
    """

    def __init__(
        self,
        step: str,
        *,
        needs: Mapping[str, str | FieldSpec] | None = None,
        produces: Mapping[str, str | FieldSpec] | None = None,
    ) -> None:
        self.step = step
        self.needs = _fields(needs)
        self.produces = _fields(produces)

    def validate(self, batch: Frame, *, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
        """Check that a batch has what the step needs.

        Args:
            batch: The batch that goes into the step.
            sizes: Values of named sizes that are known already.

        Returns:
            The value of each named size.

        Raises:
            SchemaError: Columns are missing or wrong; the message names every one.
        """
        return self._validate(batch, self.needs, sizes, "needs")

    def validate_output(self, batch: Frame, *, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
        """Check that a batch has what the step promises to produce; otherwise as ``validate``."""
        return self._validate(batch, self.produces, sizes, "produces")

    def _validate(
        self, batch: Frame, fields: Mapping[str, FieldSpec], sizes: Mapping[str, int] | None, verb: str
    ) -> dict[str, int]:
        batch._sync()
        known = dict(sizes or {})
        complaints = []
        for name, field in fields.items():
            if name not in batch._tensors and name not in batch._arrays:
                if not field.optional:
                    complaints.append(f"  {name}: missing, {field}")
            elif (complaint := field.complaint(batch._column(name), known)) is not None:
                complaints.append(f"  {name}: {complaint}")
        if complaints:
            raise SchemaError(
                "\n".join(
                    [f"step {self.step!r} {verb} columns that the batch does not have as asked:", *complaints]
                )
                + f"\nthe batch has {batch._names()}"
            )
        return known

    def to_json(self) -> dict[str, object]:
        """Return the schema as plain values, for a file or a message."""
        return {
            "step": self.step,
            "needs": {name: str(field) for name, field in self.needs.items()},
            "produces": {name: str(field) for name, field in self.produces.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Self:
        """Return the schema that ``to_json`` wrote."""
        step, needs, produces = data.get("step"), data.get("needs"), data.get("produces")
        if not isinstance(step, str) or not isinstance(needs, Mapping) or not isinstance(produces, Mapping):
            raise SchemaError(f"a schema has 'step', 'needs' and 'produces', not {sorted(map(str, data))}")
        return cls(step, needs=needs, produces=produces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataSchema) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.step, tuple(self.needs.items()), tuple(self.produces.items())))

    def __repr__(self) -> str:
        return f"DataSchema({self.step!r}, needs={list(self.needs)}, produces={list(self.produces)})"


@dataclass(frozen=True, slots=True)
class FieldUse:
    """Who writes and who reads one column."""

    name: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    specs: tuple[str, ...]
    """The different forms in which steps describe it; more than one is a disagreement."""


def field_uses(schemas: Iterable[DataSchema], *, given: Iterable[str] = ()) -> list[FieldUse]:
    """Return, for each column of a pipeline, the steps that produce and consume it.

    Args:
        schemas: The steps in the order in which they run.
        given: Columns that the pipeline starts with.

    Raises:
        SchemaError: A step needs a column that is not given and that no earlier step produces.
    """
    steps = list(schemas)
    producers: dict[str, list[str]] = {name: ["(given)"] for name in given}
    consumers: dict[str, list[str]] = {}
    specs: dict[str, dict[str, None]] = {}
    missing = []
    for schema in steps:
        for name, field in schema.needs.items():
            consumers.setdefault(name, []).append(schema.step)
            specs.setdefault(name, {})[str(field).rstrip("?")] = None
            if name not in producers and not field.optional:
                missing.append(f"  {schema.step}: {name}")
        for name, field in schema.produces.items():
            producers.setdefault(name, []).append(schema.step)
            specs.setdefault(name, {})[str(field).rstrip("?")] = None
    if missing:
        raise SchemaError("\n".join(["steps need columns that nothing produces before them:", *missing]))
    names = dict.fromkeys((*producers, *consumers))
    return [
        FieldUse(
            name, tuple(producers.get(name, ())), tuple(consumers.get(name, ())), tuple(specs.get(name, {}))
        )
        for name in names
    ]


def field_table(schemas: Iterable[DataSchema], *, given: Iterable[str] = ()) -> str:
    """Return ``field_uses`` as a table to print."""
    rows = [("column", "as", "produced by", "consumed by")]
    rows += [
        (
            use.name,
            " / ".join(use.specs) or "-",
            ", ".join(use.producers) or "-",
            ", ".join(use.consumers) or "-",
        )
        for use in field_uses(schemas, given=given)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
