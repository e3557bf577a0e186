"""Rows from files and data sets, and what is said about bad ones."""

import csv
import json
import pickle
from pathlib import Path

import pytest

from roll_pipelines.data.sources import DataError, SourceRow, read_rows_as, read_source

ROWS = [{"prompt": "1+1=", "response": "2"}, {"prompt": "a,b\nc", "response": 'say "hi"'}]


def values(name: str | Path) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_source(str(name))]


def places(name: str | Path) -> list[str]:
    return [row.place for row in read_source(str(name))]


def test_jsonl_rows_stand_at_their_lines_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROWS[0]) + "\n\n" + json.dumps(ROWS[1]) + "\n", encoding="utf-8")
    assert values(file) == ROWS
    assert places(file) == [f"{file}:1", f"{file}:3"]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_rows_stand_at_the_line_at_which_they_begin(tmp_path: Path, indent: int | None) -> None:
    file = tmp_path / "rows.json"
    file.write_text("\n" + json.dumps(ROWS, indent=indent), encoding="utf-8")
    assert values(file) == ROWS
    assert places(file) == ([f"{file}:3", f"{file}:7"] if indent else [f"{file}:2", f"{file}:2"])


def test_csv_rows_stand_at_the_line_at_which_they_begin_whatever_lines_their_cells_have(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('prompt,response\n"a,b\nc","say ""hi"""\n1+1=,2\n', encoding="utf-8")
    assert values(file) == [ROWS[1], ROWS[0]]
    assert places(file) == [f"{file}:2", f"{file}:4"]


def test_parquet_rows_and_a_saved_data_set_give_the_same_rows(tmp_path: Path) -> None:
    import datasets  # type: ignore[import-untyped]  # ships no types

    made = datasets.Dataset.from_list(ROWS)
    file, folder = tmp_path / "rows.parquet", tmp_path / "saved"
    made.to_parquet(str(file))
    made.save_to_disk(str(folder))
    assert values(file) == values(folder) == ROWS
    assert places(file) == [f"{file}: row 0", f"{file}: row 1"]


def test_any_loader_of_datasets_can_be_named_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "rows.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    name = f"datasets:text?data_files={file}&split=train&cache_dir={tmp_path / 'cache'}"
    assert values(name) == [{"text": "one"}, {"text": "two"}]


def test_what_a_loader_of_datasets_cannot_read_and_streams_are_refused(tmp_path: Path) -> None:
    broken, file = tmp_path / "rows.json", tmp_path / "rows.txt"
    broken.write_text('{"a": ', encoding="utf-8")
    file.write_text("one\n", encoding="utf-8")
    cache = f"cache_dir={tmp_path / 'cache'}"
    with pytest.raises(DataError, match=r"datasets\.load_dataset refuses it"):
        read_source(f"datasets:json?data_files={broken}&{cache}")
    with pytest.raises(DataError, match="is a stream"):
        read_source(f"datasets:text?data_files={file}&streaming=true&{cache}")


def test_a_data_set_with_several_splits_asks_for_one(tmp_path: Path) -> None:
    import datasets

    folder = tmp_path / "saved"
    made = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": made, "test": made}).save_to_disk(str(folder))
    with pytest.raises(DataError, match=r"several splits, train, test; add \?split=NAME"):
        read_source(str(folder))


def test_every_line_that_is_no_json_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n{"a": \n[1]\n', encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_source(str(file))
    first, second = str(refused.value).splitlines()
    assert first.startswith(f"{file}:2: is no JSON")
    assert second == f"{file}:3: a row must be an object with columns, not [1]"


def test_a_list_that_breaks_off_is_named_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text('[\n{"a": 1},\n{"a"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.json:4: is no JSON"):
        read_source(str(file))


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('{"a": 1}', 1, "a list of rows must begin with a bracket; for one row a line use .jsonl"),
        ('[{"a": 1}\n{"a": 2}]', 2, "a comma or the end of the list must follow a row"),
        ('[{"a": 1},\n\n]', 3, "Expecting value"),
        ('[{"a": 1}]\n[]', 2, "nothing may follow the list"),
    ],
)
def test_a_list_that_is_not_written_as_json_is_named_at_its_line(
    tmp_path: Path, text: str, line: int, why: str
) -> None:
    file = tmp_path / "rows.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_source(str(file))
    assert str(refused.value) == f"{file}:{line}: is no JSON: {why}"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv"])
def test_a_byte_order_mark_is_no_part_of_the_rows_and_other_encodings_are_named(
    tmp_path: Path, name: str
) -> None:
    texts = {".jsonl": '{"a": "é"}', ".json": '[{"a": "é"}]', ".csv": "a\né\n"}
    file = tmp_path / name
    file.write_text(texts[file.suffix], encoding="utf-8-sig")
    assert values(file) == [{"a": "é"}]
    file.write_text(texts[file.suffix], encoding="latin-1")
    with pytest.raises(DataError, match=r"is not UTF-8 at byte \d+; convert it"):
        read_source(str(file))


def test_a_csv_cell_may_hold_a_whole_document(tmp_path: Path) -> None:
    file, before = tmp_path / "rows.csv", csv.field_size_limit()
    file.write_text(f"a\n{'x' * (before + 1)}\n", encoding="utf-8")
    assert values(file) == [{"a": "x" * (before + 1)}]
    assert csv.field_size_limit() == before


def test_a_csv_row_with_too_many_or_too_few_cells_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("prompt,response\na,b\na\na,b,c\n", encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_source(str(file))
    assert str(refused.value).splitlines() == [
        f"{file}:3: has 1 cells, but the header names 2 columns",
        f"{file}:4: has 3 cells, but the header names 2 columns",
    ]


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"rows\.parquet: is no Parquet file"):
        read_source(str(file))


def test_a_file_that_is_missing_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_source(str(tmp_path / "rows.jsonl"))
    other = tmp_path / "rows.yaml"
    other.touch()
    with pytest.raises(DataError, match=r"\.jsonl, \.json, \.csv, \.parquet, not from '\.yaml'"):
        read_source(str(other))


def test_rows_that_a_pipeline_cannot_use_are_listed_with_their_lines_and_the_rest_counted(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rows.jsonl"
    good, bad = json.dumps({"prompt": "a"}), json.dumps({"prompt": 3})
    file.write_text("\n".join([good, *[bad] * 12]), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_rows_as(str(file), lambda row: row.text("prompt"))
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{file}:2: column 'prompt' must be a text, got 3; the row has the columns prompt"
    assert len(lines) == 11
    assert lines[-1] == "... and 2 more"


def test_each_source_keeps_its_own_list_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    one, two, none = (tmp_path / f"{name}.jsonl" for name in ("one", "two", "none"))
    one.write_text('{"a": "x"}\n', encoding="utf-8")
    two.write_text('{"a": "y"}\n{"a": "z"}\n', encoding="utf-8")
    none.touch()
    assert read_rows_as([str(one), str(two)], lambda row: row.text("a")) == [["x"], ["y", "z"]]
    with pytest.raises(DataError, match=r"none\.jsonl: has no rows"):
        read_rows_as(str(none), lambda row: row.text("a"))


def test_the_error_can_be_pickled() -> None:
    error = DataError("rows.jsonl:3: is bad")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert SourceRow({"a": "b"}, "x:1").text("a") == "b"
