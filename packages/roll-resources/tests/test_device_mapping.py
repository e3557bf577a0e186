"""Device mappings are parsed, never evaluated."""

import ast
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_resources import DeviceMappingError, parse_device_mapping


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        ([0, 1], (0, 1)),
        ((3, 1), (3, 1)),
        (range(2, 5), (2, 3, 4)),
        ("list(range(0, 8))", tuple(range(8))),
        ("range(4)", (0, 1, 2, 3)),
        ("range(0, 8, 2)", (0, 2, 4, 6)),
        ("range(3, -1, -1)", (3, 2, 1, 0)),
        ("[0, 2, 1]", (0, 2, 1)),
        ("list(range(0, 2)) + [6, 7]", (0, 1, 6, 7)),
        ("0-3,6", (0, 1, 2, 3, 6)),
        (" 0 - 1 , 4 ", (0, 1, 4)),
        ("5", (5,)),
        (None, None),
        ([], None),
        ("", None),
        ("[]", None),
        ("list(range(0, 0))", None),
    ],
)
def test_mapping_in_the_grammar_gives_its_ids_in_order(written: object, ids: object) -> None:
    assert parse_device_mapping(written) == ids  # type: ignore[arg-type]  # parametrised over every accepted type


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("__import__('os').system('true')", "__import__"),
        ("[x for x in range(3)]", "grammar"),
        ("range(0, 8, 0)", "step"),
        ("3-1", "smaller id first"),
        ("0-", "cannot be read"),
        ("[0, 1.5]", "1.5"),
        ("[0, True]", "True"),
        ("list(range(n))", "n"),
        ("list()", "list()"),
        ("range(stop=3)", "grammar"),
        ("[0] * 3", "grammar"),
        ("0-2000000", "at most"),
        ("range(10**9)", "10 ** 9"),
        ("((((", "cannot be read"),
        ("[0, 1, 1]", "[1] more than once"),
        ([0, 0], "[0] more than once"),
        ([-1, 2], "negative ids [-1]"),
        ([0, "1"], "'1'"),
        ([True], "True"),
    ],
)
def test_mapping_outside_the_grammar_is_refused_by_name(written: object, word: str) -> None:
    with pytest.raises(DeviceMappingError, match="device_mapping") as caught:
        parse_device_mapping(written)  # type: ignore[arg-type]  # wrong types are the point
    assert word in str(caught.value)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(-5, 5).filter(bool))
def test_range_agrees_with_python(start: int, stop: int, step: int) -> None:
    expected = tuple(range(start, stop, step)) or None
    assert parse_device_mapping(f"list(range({start}, {stop}, {step}))") == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=6))
def test_dashes_agree_with_ranges(parts: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}" for first, more in parts)
    ids = [device for first, more in parts for device in range(first, first + more + 1)]
    if len(set(ids)) != len(ids):
        with pytest.raises(DeviceMappingError, match="more than once"):
            parse_device_mapping(text)
    else:
        assert parse_device_mapping(text) == (tuple(ids) or None)


@given(st.text(alphabet=string.ascii_letters + string.digits + "()[]{}+-*,. _'\"", max_size=40))
def test_any_text_gives_ids_or_one_kind_of_error(text: str) -> None:
    try:
        ids = parse_device_mapping(text)
    except DeviceMappingError:
        return
    assert ids is None or all(isinstance(device, int) and device >= 0 for device in ids)


NODES = st.sampled_from(
    [
        "lambda: 0",
        "[*range(3)]",
        "{0, 1}",
        "{0: 1}",
        "f'{0}'",
        "a.b",
        "a[0]",
        "1 if 2 else 3",
        "not 1",
        "(yield)",
    ]
)


@given(NODES, st.sampled_from(["{}", "[{}]", "list({})", "range({})", "[0] + ({})"]))
def test_every_other_kind_of_expression_is_refused(inner: str, outer: str) -> None:
    text = outer.format(inner)
    ast.parse(text)  # it is Python, only not ours
    with pytest.raises(DeviceMappingError):
        parse_device_mapping(text)
