"""Chat messages as token ids."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from roll_pipelines.data.messages import TEMPLATES, chat_ids, conversation, messages_of, set_template
from roll_pipelines.data.sources import DataError, SourceRow
from roll_pipelines.data.tokenizer import character_tokenizer

TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "cu"},
]


def tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    made = character_tokenizer("abcdefghijklmnopqrstuvwxyz_|<>:\n ")
    set_template(made, template)
    return made


def text(made: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    return str(made.decode(list(ids)))


def said(template: str, messages: list[dict[str, str]]) -> list[str]:
    """Returns the stretches of text that are marked as an assistant's."""
    made = tokenizer(template)
    talk = conversation(made, messages)
    stretches: list[list[int]] = []
    open_ = False
    for token, mark in zip(talk.ids, talk.said, strict=True):
        if mark and not open_:
            stretches.append([])
        if mark:
            stretches[-1].append(token)
        open_ = mark
    return [text(made, stretch) for stretch in stretches]


def test_every_assistant_turn_is_marked_with_its_end_and_without_its_header() -> None:
    assert said("chatml", TALK) == ["yo<|im_end|>\n", "cu<|im_end|>\n"]
    assert said("plain", TALK) == ["yo<eos>\n", "cu<eos>\n"]


def test_a_conversation_without_an_assistant_has_nothing_to_learn() -> None:
    assert said("chatml", TALK[:1]) == []


def test_a_generation_prompt_ends_with_what_stands_before_the_answer() -> None:
    made = tokenizer("chatml")
    assert text(made, chat_ids(made, TALK[:1], generation_prompt=True)).endswith("<|im_start|>assistant\n")


def test_a_template_that_rewrites_earlier_messages_is_refused() -> None:
    made = tokenizer(None)
    made.chat_template = "{{ messages | length }}" + TEMPLATES["plain"]
    made.add_tokens(list("0123456789"))
    with pytest.raises(ValueError, match="rewrites the messages before message 1"):
        conversation(made, TALK)


def test_a_tokenizer_without_a_template_says_how_to_give_it_one() -> None:
    with pytest.raises(ValueError, match=r"data_args\.template.*chatml"):
        chat_ids(tokenizer(None), TALK)


def test_a_template_can_be_a_file_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}", encoding="utf-8")
    made = tokenizer(str(file))
    assert text(made, chat_ids(made, TALK)) == "hiyobyecu"
    with pytest.raises(
        ValueError, match=r"no template and no file 'chatlm'; choose from \['chatml', 'plain'\]"
    ):
        set_template(made, "chatlm")


def test_messages_are_read_as_a_list_or_as_its_json_text() -> None:
    listed = SourceRow({"messages": [{**TALK[0], "extra": 1}]}, "x:1")
    assert messages_of(listed, "messages") == TALK[:1]
    assert messages_of(SourceRow({"messages": json.dumps(TALK)}, "x:1"), "messages") == TALK


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "must be a list of messages, got None; the row has the columns messages"),
        ([], "must be a list of messages"),
        ("[", "is a text that is no JSON"),
        ([{"role": "user"}], "message 0 of column 'messages' must have the texts"),
        (["hi"], "message 0 of column 'messages' must have the texts"),
    ],
)
def test_what_is_no_list_of_messages_is_named_with_its_place(value: object, complaint: str) -> None:
    with pytest.raises(DataError, match=f"rows.jsonl:7: .*{complaint}"):
        messages_of(SourceRow({"messages": value}, "rows.jsonl:7"), "messages")
