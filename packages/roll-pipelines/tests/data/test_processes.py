"""Rows worked on by several processes."""

import operator
import os
import pickle
from collections.abc import Callable
from functools import partial

import pytest

from roll_pipelines.data import SupervisedRow, character_tokenizer
from roll_pipelines.data.pairs import PreferencePair, _ids
from roll_pipelines.data.processes import in_processes
from roll_pipelines.data.supervised import encode_row

TOKENIZER = character_tokenizer("ab=")


def process_of(row: object) -> int:
    return os.getpid()


def test_one_process_is_this_one() -> None:
    assert in_processes(process_of, [1, 2], workers=1) == [os.getpid()] * 2


def test_several_processes_give_what_one_gives_in_the_order_of_the_rows() -> None:
    rows = list(range(50))
    assert in_processes(operator.neg, rows, workers=2) == in_processes(operator.neg, rows, workers=1)
    assert os.getpid() not in in_processes(operator.methodcaller("__call__"), [os.getpid] * 4, workers=2)


@pytest.mark.parametrize(
    ("encode", "row"),
    [
        (partial(encode_row, tokenizer=TOKENIZER), SupervisedRow("ab=", "ba")),
        (partial(_ids, tokenizer=TOKENIZER, as_chat=False), PreferencePair("ab=", "ba", "ab")),
    ],
)
def test_what_makes_token_ids_of_a_row_can_be_sent_to_another_process(
    encode: Callable[[object], object], row: object
) -> None:
    assert pickle.loads(pickle.dumps(encode))(row) == encode(row)
