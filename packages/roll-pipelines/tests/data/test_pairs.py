"""Preference pairs from rows to batches."""

import pytest
import torch

from roll_pipelines.columns import tensor
from roll_pipelines.data.messages import set_template
from roll_pipelines.data.pairs import (
    EncodedPair,
    PairColumns,
    PreferencePair,
    answer_rows,
    collate_pairs,
    encode_pairs,
    mismatched,
    parse_pair,
)
from roll_pipelines.data.sources import DataError, SourceRow
from roll_pipelines.data.tokenizer import character_tokenizer

USER = {"role": "user", "content": "q"}
GOOD, BAD = {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
ONE = EncodedPair((5, 6), (7, 1), (8, 9, 1))


def parsed(values: dict[str, object], *, singles: bool = False) -> PreferencePair:
    return parse_pair(SourceRow(values, "rows.jsonl:2"), PairColumns(), singles=singles)


def test_a_row_of_texts_and_a_row_of_messages_are_both_pairs() -> None:
    assert parsed({"prompt": "q", "chosen": "a", "rejected": "b"}) == PreferencePair("q", "a", "b")
    row: dict[str, object] = {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}
    assert parsed(row) == PreferencePair([USER], [GOOD], [BAD])


def test_two_whole_conversations_share_their_beginning_as_the_prompt() -> None:
    row: dict[str, object] = {"chosen": [USER, GOOD], "rejected": [USER, BAD]}
    assert parsed(row) == PreferencePair([USER], [GOOD], [BAD])


def test_single_answers_with_a_label_are_taken_only_where_the_loss_learns_from_them() -> None:
    row: dict[str, object] = {"prompt": "q", "response": "a", "label": True}
    assert parsed(row, singles=True) == PreferencePair("q", "a", None)
    assert parsed({**row, "label": 0}, singles=True) == PreferencePair("q", None, "a")
    with pytest.raises(DataError, match=r"rows\.jsonl:2: column 'chosen' must be a text"):
        parsed(row)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"prompt": "q", "chosen": "a"}, "column 'rejected' must be a text, got None"),
        ({"chosen": "a", "rejected": "b"}, "has no column 'prompt'"),
        ({"chosen": [GOOD], "rejected": [BAD]}, "must begin with the same messages"),
        ({"chosen": [USER], "rejected": [USER, BAD]}, "must begin with the same messages and then differ"),
        ({"prompt": "q", "response": "a", "label": "yes"}, "'label' must be true or false, got 'yes'"),
    ],
)
def test_a_row_of_another_form_is_named_with_its_line(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(DataError, match=f"rows.jsonl:2: .*{complaint}"):
        parsed(values, singles=True)


def test_texts_are_ended_by_the_end_token_and_the_prompt_by_nothing() -> None:
    made = character_tokenizer("qab")
    (pair,) = encode_pairs([PreferencePair("q", "a", "bb")], made, max_length=9, policy="drop").pairs
    eos = made.eos_token_id
    assert pair == EncodedPair((3,), (4, eos), (5, 5, eos))


def test_chat_answers_are_what_the_template_writes_after_the_prompt_with_its_header() -> None:
    made = character_tokenizer("abcdefghijklmnopqrstuvwxyz: \n")
    set_template(made, "plain")
    texts = encode_pairs(
        [PreferencePair("q", "a", "b")], made, max_length=99, policy="drop", as_chat=True
    ).pairs
    messages = encode_pairs([PreferencePair([USER], [GOOD], "b")], made, max_length=99, policy="drop").pairs
    assert texts == messages
    assert made.decode(list(texts[0].prompt_ids)) == "user: q\nassistant: "
    assert made.decode(list(texts[0].chosen_ids)) == "a<eos>\n"


def test_pairs_under_a_length_policy_are_counted_and_none_left_is_an_error() -> None:
    made = character_tokenizer("qab")
    pairs = [PreferencePair("q", "a", "b"), PreferencePair("qqqq", "a", "b")]
    encoded = encode_pairs(pairs, made, max_length=4, policy="truncate_left")
    assert [len(pair.prompt_ids) for pair in encoded.pairs] == [1, 2]
    assert (encoded.count.kept, encoded.count.truncated) == (1, 1)
    with pytest.raises(ValueError, match="none of 2 pairs is left"):
        encode_pairs(pairs, made, max_length=2, policy="drop")


def test_a_batch_holds_both_answers_of_a_pair_in_one_row_with_masks_from_lengths() -> None:
    batch = collate_pairs([ONE], pad_token_id=1, paired=True)  # the end token is the padding token
    assert tensor(batch, "input_ids").tolist() == [[[5, 6, 7, 1, 1], [5, 6, 8, 9, 1]]]
    assert tensor(batch, "attention_mask").tolist() == [[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]
    assert tensor(batch, "response_mask").tolist() == [[[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]]
    assert tensor(batch, "present").tolist() == [[True, True]]


@pytest.mark.parametrize(("paired", "count"), [(True, 2), (False, 4)])
def test_the_pair_mask_counts_pairs_or_answers_and_no_padding(paired: bool, count: int) -> None:
    batch = collate_pairs([ONE, ONE], pad_token_id=0, paired=paired, pad_to=3)
    assert len(batch) == 3
    assert int(tensor(batch, "pair_mask").sum()) == count
    assert not tensor(batch, "pair_mask")[..., 0].any()  # the first position of a mask is not counted
    assert not tensor(batch, "present")[2].any()
    assert tensor(batch, "attention_mask")[2].sum(-1).tolist() == [2, 2]


def test_a_missing_answer_is_absent_and_counts_nothing() -> None:
    batch = collate_pairs([EncodedPair((5,), (), (8, 1))], pad_token_id=0, paired=False)
    assert tensor(batch, "present").tolist() == [[False, True]]
    assert tensor(batch, "pair_mask").sum(-1).tolist() == [[0, 1]]
    assert tensor(batch, "response_mask").sum(-1).tolist() == [[0, 2]]


def test_splitting_pairs_never_parts_the_two_answers_of_one() -> None:
    batch = collate_pairs([ONE] * 3, pad_token_id=0, paired=True)
    parts = [answer_rows(part) for part in batch.chunk(2)]
    assert [len(part) for part in parts] == [4, 2]
    for part in parts:
        ids = tensor(part, "input_ids")
        assert torch.equal(ids[0::2, 2], torch.full_like(ids[0::2, 2], 7))
        assert torch.equal(ids[1::2, 2], torch.full_like(ids[1::2, 2], 8))


def test_mismatched_rows_answer_the_next_prompt() -> None:
    other = EncodedPair((9,), (), (3, 1))
    assert mismatched([ONE, other]) == [EncodedPair((5, 6), (3, 1), ()), EncodedPair((9,), (7, 1), ())]
