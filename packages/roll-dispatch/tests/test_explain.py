import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from roll_dispatch import Dispatch, Topology, register_dispatch
from roll_dispatch.__main__ import main
from roll_dispatch.explain import explain, spans, told
from roll_dispatch.svg import draw


def test_explain_draws_which_rows_go_where_and_which_ranks_answer() -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "roll_dispatch",
            "explain",
            "DP_MP_COMPUTE",
            *["--dp", "2", "--tp", "2", "--pp", "2", "--rows", "5"],
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found == (
        "DP_MP_COMPUTE: Rows are split over DP ranks and shared by their TP, PP and CP peers; one rank of "
        "each answers.\n<Topology of 8 rank(s): dp=2, tp=2, pp=2>\n rank   dp   tp   pp   cp  answers  "
        "receives\n    0    0    0    0    0           rows 0-2\n    1    0    1    0    0           rows "
        "0-2\n    2    1    0    0    0           rows 3-4\n    3    1    1    0    0           rows 3-4\n "
        "   4    0    0    1    0     *     rows 0-2\n    5    0    1    1    0           rows 0-2\n    6  "
        "  1    0    1    0     *     rows 3-4\n    7    1    1    1    0           rows 3-4\nresult: rows "
        "0-2 from rank 4, then rows 3-4 from rank 6\n"
    )


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            "ONE_TO_ALL --dp 2",
            [
                "    1    1    0    0    0     *     rows 0-7",
                "result: the list of the outputs of ranks 0-1, in this order",
            ],
        ),
        ("ONE_TO_ALL_ONE --dp 2", ["result: the output of rank 0"]),
        ("ALL_TO_ALL --dp 3", ["    2    2    0    0    0     *     row 2"]),
        (
            "DP_MP_DISPATCH_FIRST --dp 2 --tp 2 --rows 3",
            [
                "    1    0    1    0    0           no rows",
                "result: rows 0-1 from rank 0, then row 2 from rank 2",
            ],
        ),
        (
            "DP_MP_DISPATCH_FIRST --dp 1 --pp 2 --rows 3",
            ["    1    0    0    1    0     *     no rows", "result: rows 0-2 from rank 1"],
        ),
        (
            "DP_MP_COMPUTE --dp 3 --rows 1 --empty skip",
            ["    1    1    0    0    0           not called", "result: row 0 from rank 0"],
        ),
        (
            "over:dp,cp --dp 2 --cp 2 --rows 3 --pad",
            [
                "    3    1    0    0    1     *     row 0",
                "result: row 0 from rank 0, then row 1 from rank 1, then row 2 from rank 2, then row 0 from "
                "rank 3; repeated rows are taken off",
            ],
        ),
        (
            "DIRECT --dp 2 --to 1,0,1",
            [
                "result: row 1 from rank 0, then rows 0, 2 from rank 1; rows are put back in the caller's "
                "order"
            ],
        ),
        ("direct:dp --dp 2 --tp 2 --rows 2", ["    3    1    1    0    0           row 1"]),
        (
            "balanced --dp 2 --costs 9,1,1,9",
            ["    0    0    0    0    0     *     rows 0-1", "    1    1    0    0    0     *     rows 2-3"],
        ),
        (
            "DP_MP_COMPUTE --dp 4 --ep 2 --rows 4",
            [
                " rank   dp   tp   pp   cp   ep  answers  receives",
                "    3    3    0    0    0    1     *     row 3",
            ],
        ),
        (
            "DP_MP_COMPUTE --dp 2 --tp 2 --order dp-tp-pp-cp --rows 2",
            ["    1    1    0    0    0     *     row 1"],
        ),
    ],
)
def test_every_mode_is_explained(words: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words.split()]) == 0
    found = capsys.readouterr().out.splitlines()
    for line in lines:
        assert line in found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("ALL_TO_ALL --dp 2 --rows 3", "ALL_TO_ALL: argument 0 is a list of 3"),
        ("DP_COMPUTE", "no mode is named 'DP_COMPUTE'"),
        ("DP_MP_COMPUTE --dp 0", "sizes are 1 or more"),
        ("ONE_TO_ALL --pad", "ONE_TO_ALL has no pad="),
        ("over:xp", "rows lie over one or more different axes"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words.split()]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert sentence in found.err
    assert found.err.count("\n") == 1


def test_a_mode_of_your_own_is_explained() -> None:
    mode = register_dispatch(
        "EVERY_OTHER",
        split=lambda topology, args, kwargs: [(args, kwargs) if r.rank % 2 else None for r in topology],
        collect=lambda topology, outputs: None,
        summary="Every other rank.",
    )
    assert str(explain(mode, Topology.data_parallel(4), 2)).splitlines()[3:] == [
        "    0    0    0    0    0           not called",
        "    1    1    0    0    0     *     rows 0-1",
        "    2    2    0    0    0           not called",
        "    3    3    0    0    0     *     rows 0-1",
        "result: made of the outputs of ranks 1, 3",
    ]


@pytest.mark.parametrize(
    "mode",
    [*map(Dispatch.named, ("DP_MP_COMPUTE", "ONE_TO_ALL", "DIRECT")), Dispatch.balanced("costs")],
    ids=repr,
)
@pytest.mark.parametrize("rows", [0, 5, 40])
def test_the_picture_is_well_formed_and_shows_every_rank_and_only_whole_numbers_of_rows(
    mode: Dispatch, rows: int
) -> None:
    topology = Topology.from_sizes(8, tp=2, pp=2)
    picture = ET.fromstring(draw(explain(mode, topology, rows)))
    words = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert [word for word in words if word.startswith("rank ")] == [f"rank {rank}" for rank in range(8)]
    assert words[0] == mode.name
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for box in picture.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
        assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height


def test_svg_writes_the_picture_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "picture.svg"
    assert main(["explain", "DP_MP_COMPUTE", "--dp", "2", "--rows", "3", "--svg", str(target)]) == 0
    assert target.read_text(encoding="utf-8").startswith("<svg ")
    assert "result: rows 0-1" in capsys.readouterr().out


def test_rows_are_told_in_words() -> None:
    assert told(None) == "not called"
    assert told(()) == "no rows"
    assert told((4,)) == "row 4"
    assert told((0, 1, 2, 7, 5, 6)) == "rows 0-2, 7, 5-6"
    assert spans([]) == ""
