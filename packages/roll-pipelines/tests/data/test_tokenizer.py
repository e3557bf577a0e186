"""The character tokenizer, alone and after a round trip through a directory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from roll_pipelines.data import DEFAULT_ALPHABET, character_tokenizer

TOKENIZER = character_tokenizer()


@given(st.text(alphabet=DEFAULT_ALPHABET, max_size=30))
def test_every_text_of_the_alphabet_comes_back_one_token_a_character(text: str) -> None:
    ids = TOKENIZER(text).input_ids
    assert len(ids) == len(text)
    assert TOKENIZER.decode(ids) == text


def test_special_tokens_come_first_and_differ() -> None:
    assert [TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, TOKENIZER.unk_token_id] == [0, 1, 2]
    assert TOKENIZER.convert_ids_to_tokens([3]) == ["0"]


def test_an_alphabet_without_capitals_reads_them_as_small_letters() -> None:
    assert character_tokenizer("ab")("AB").input_ids == character_tokenizer("ab")("ab").input_ids
    assert character_tokenizer("aA")("A").input_ids == [4]


def test_an_unknown_character_has_the_unknown_token() -> None:
    assert character_tokenizer("ab")("a\nb").input_ids == [3, 2, 4]


def test_a_saved_tokenizer_loads_like_any_other(tmp_path: Path) -> None:
    character_tokenizer("abc =").save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("c a=").input_ids == [5, 6, 3, 7]
    assert loaded.decode([5, 6, 3, 1, 0], skip_special_tokens=True) == "c a"
    assert (loaded.pad_token_id, loaded.eos_token_id) == (0, 1)


def test_an_empty_alphabet_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        character_tokenizer("")
