"""Rows worked on by several processes."""

import os

from roll_pipelines.data import SupervisedRow, character_tokenizer, encode_rows
from roll_pipelines.data.processes import in_processes


def process_of(row: object) -> int:
    return os.getpid()


def test_one_process_is_this_one() -> None:
    assert in_processes(process_of, [1, 2], workers=1) == [os.getpid()] * 2


def test_several_processes_give_the_rows_of_one_in_their_order() -> None:
    tokenizer = character_tokenizer("ab=")
    rows = [SupervisedRow("ab"[n % 2] + "=", "ab"[: n % 3]) for n in range(40)]
    alone, together = (encode_rows(rows, tokenizer, max_length=4, workers=workers) for workers in (1, 2))
    assert together == alone
