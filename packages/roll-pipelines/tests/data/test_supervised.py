"""Supervised rows: encoded, shortened, collated and ordered."""

import pytest
import torch

from roll_pipelines.columns import tensor
from roll_pipelines.data import (
    SupervisedRow,
    character_tokenizer,
    collate,
    encode_rows,
    epoch_order,
)
from roll_pipelines.data.lengths import LengthCount, LengthPolicy
from roll_pipelines.data.messages import set_template
from roll_pipelines.data.supervised import EncodedRow, in_batches

TOKENIZER = character_tokenizer("ab=")
A, B, EQ, EOS, PAD = 3, 4, 5, 1, 0


def test_an_answer_ends_with_the_end_token() -> None:
    encoded = encode_rows([SupervisedRow("ab=", "ba")], TOKENIZER, max_length=6)
    assert encoded.rows == (EncodedRow((A, B, EQ), (B, A, EOS)),)
    assert encoded.count == LengthCount(kept=1)


def test_labels_are_shifted_and_stand_only_where_an_answer_token_is_predicted() -> None:
    rows = encode_rows([SupervisedRow("ab=", "ba"), SupervisedRow("a=", "a")], TOKENIZER, max_length=9).rows
    batch = collate(rows, pad_token_id=PAD)
    assert tensor(batch, "input_ids").tolist() == [[A, B, EQ, B, A, EOS], [A, EQ, A, EOS, PAD, PAD]]
    assert tensor(batch, "attention_mask").tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert tensor(batch, "labels").tolist() == [
        [-100, -100, B, A, EOS, -100],
        [-100, A, EOS, -100, -100, -100],
    ]


def test_an_end_token_that_is_also_the_padding_token_is_still_learnt() -> None:
    batch = collate([EncodedRow((A,), (B, EOS)), EncodedRow((A,), (EOS,))], pad_token_id=EOS)
    assert tensor(batch, "labels").tolist() == [[B, EOS, -100], [EOS, -100, -100]]
    assert tensor(batch, "attention_mask").tolist() == [[1, 1, 1], [1, 1, 0]]


def test_an_answer_without_a_prompt_is_learnt_from_its_second_token_on() -> None:
    batch = collate([EncodedRow((), (B, A, EOS))], pad_token_id=PAD)
    assert tensor(batch, "labels").tolist() == [[A, EOS, -100]]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("truncate_right", EncodedRow((A, B, EQ), (B,))),
        ("truncate_left", EncodedRow((EQ,), (B, A, EOS))),
    ],
)
def test_long_rows_are_shortened_at_the_end_that_the_policy_names(
    policy: LengthPolicy, expected: EncodedRow
) -> None:
    encoded = encode_rows([SupervisedRow("ab=", "ba")], TOKENIZER, max_length=4, policy=policy)
    assert encoded.rows == (expected,)
    assert encoded.count == LengthCount(truncated=1)


def test_long_rows_are_dropped_and_counted_when_the_policy_says_so() -> None:
    rows = [SupervisedRow("ab=", "ba"), SupervisedRow("a=", "a")]
    encoded = encode_rows(rows, TOKENIZER, max_length=4, policy="drop")
    assert [row.prompt_ids for row in encoded.rows] == [(A, EQ)]
    assert encoded.count == LengthCount(kept=1, dropped=1)


def test_a_row_of_which_no_answer_is_left_is_dropped() -> None:
    rows = [SupervisedRow("ab=", "ba"), SupervisedRow("a", "a")]
    encoded = encode_rows(rows, TOKENIZER, max_length=3, policy="truncate_right")
    assert len(encoded.rows) == 1
    assert encoded.count == LengthCount(kept=1, dropped=1)


def test_nothing_left_to_learn_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"none of 1 rows is left: 1 were dropped .* raise sequence_length"):
        encode_rows([SupervisedRow("ab=", "ba")], TOKENIZER, max_length=2)


def test_an_epoch_holds_every_row_once_in_an_order_of_its_own() -> None:
    first, second = (epoch_order(50, seed=3, epoch=epoch) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first == epoch_order(50, seed=3, epoch=0) != epoch_order(50, seed=4, epoch=0)
    assert epoch_order(3, seed=3, epoch=0, shuffle=False) == [0, 1, 2]


def test_only_the_words_of_the_assistant_are_learnt_in_every_turn() -> None:
    tokenizer = character_tokenizer("usertaisn: \nab")
    set_template(tokenizer, "plain")
    talk = tuple({"role": role, "content": text} for role, text in [
        ("user", "b"), ("assistant", "a"), ("user", "b"), ("assistant", "b")
    ])  # fmt: skip
    (row,) = encode_rows([SupervisedRow(messages=talk)], tokenizer, max_length=99).rows
    batch = collate([row], pad_token_id=0)
    ids, labels = tensor(batch, "input_ids")[0], tensor(batch, "labels")[0]
    learnt = [int(label) for label in labels if label != -100]
    a, b, newline = tokenizer("ab\n").input_ids
    assert learnt == [a, EOS, newline, b, EOS, newline]
    assert all(label in (-100, following) for label, following in zip(labels[:-1], ids[1:], strict=True))


def test_what_is_learnt_stays_with_its_tokens_when_a_conversation_is_cut_at_the_start() -> None:
    tokenizer = character_tokenizer("usertaisn: \nab")
    set_template(tokenizer, "plain")
    talk = tuple({"role": role, "content": text} for role, text in [
        ("user", "b"), ("assistant", "a"), ("user", "b"), ("assistant", "b")
    ])  # fmt: skip
    encoded = encode_rows([SupervisedRow(messages=talk)], tokenizer, max_length=6, policy="truncate_left")
    (row,) = encoded.rows
    b, newline = tokenizer("b\n").input_ids
    assert len(row.prompt_ids) + len(row.response_ids) == 6
    assert [i for i, learnt in zip(row.response_ids, row.learnt, strict=True) if learnt] == [b, EOS, newline]
    assert encoded.count == LengthCount(truncated=1)


def test_a_conversation_in_which_no_assistant_speaks_is_dropped_though_it_fits() -> None:
    tokenizer = character_tokenizer("usertaisn: \nab")
    set_template(tokenizer, "plain")
    silent = SupervisedRow(messages=({"role": "user", "content": "b"},))
    talk = SupervisedRow(messages=(*silent.messages, {"role": "assistant", "content": "a"}))
    assert encode_rows([silent, talk], tokenizer, max_length=99).count == LengthCount(kept=1, dropped=1)


def test_a_conversation_that_is_cut_before_the_assistant_speaks_is_dropped() -> None:
    tokenizer = character_tokenizer("usertaisn: \nab")
    set_template(tokenizer, "plain")
    talk = ({"role": "user", "content": "b"}, {"role": "assistant", "content": "a"})
    with pytest.raises(ValueError, match="none of 1 rows is left"):
        encode_rows([SupervisedRow(messages=talk)], tokenizer, max_length=10)


def test_the_random_state_of_the_process_is_not_touched() -> None:
    before = torch.get_rng_state()
    epoch_order(10, seed=1, epoch=0)
    assert torch.equal(before, torch.get_rng_state())


def test_batches_of_all_rows_end_with_a_short_one() -> None:
    rows = [EncodedRow((A,), (EOS,))] * 5
    assert [len(part) for part in in_batches(rows, 2)] == [2, 2, 1]
