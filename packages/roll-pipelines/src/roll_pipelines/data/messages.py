"""Chat messages as token ids, and which of them an assistant said."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from roll_pipelines.data.sources import DataError, SourceRow

Message = Mapping[str, str]
"""A message: `role` and `content`."""

TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "plain": (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    ),
}
"""Chat templates by name, for tokenizers that bring none."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages as token ids."""

    ids: tuple[int, ...]
    said: tuple[bool, ...]
    """Whether each token is part of an assistant's message, its end included."""


def set_template(tokenizer: PreTrainedTokenizerBase, template: str | None) -> None:
    """Gives a tokenizer a chat template; None leaves its own.

    Args:
        tokenizer: it is changed.
        template: a name of `TEMPLATES`, or a file with a Jinja template.

    Raises:
        ValueError: there is neither such a name nor such a file.
    """
    if template is None:
        return
    if template in TEMPLATES:
        tokenizer.chat_template = TEMPLATES[template]
    elif Path(template).is_file():
        tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
    else:
        raise ValueError(
            f"data_args.template: there is no template and no file {template!r}; choose from "
            f"{sorted(TEMPLATES)}, name a Jinja file, or leave it out to use the tokenizer's own"
        )


def messages_of(row: SourceRow, column: str) -> list[Message]:
    """Returns the messages in a column: objects with `role` and `content`, as a list or as its JSON text.

    Raises:
        DataError: the column holds something else, or nothing.
    """
    value = row.values.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as broken:
            raise DataError(f"{row.place}: column {column!r} is a text that is no JSON: {broken}") from broken
    if not isinstance(value, Sequence) or not value or isinstance(value, str):
        raise DataError(
            f"{row.place}: column {column!r} must be a list of messages, got {value!r:.80}; the row has the "
            f"columns {', '.join(map(str, row.values)) or '(none)'}"
        )
    for number, message in enumerate(value):
        known = message if isinstance(message, Mapping) else {}
        if not all(isinstance(known.get(key), str) for key in ("role", "content")):
            raise DataError(
                f"{row.place}: message {number} of column {column!r} must have the texts `role` and "
                f"`content`, got {message!r:.80}"
            )
    return [{"role": message["role"], "content": message["content"]} for message in value]


def chat_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], *, generation_prompt: bool = False
) -> tuple[int, ...]:
    """Returns messages as the tokenizer's chat template writes them.

    Args:
        tokenizer: with a chat template.
        messages: at least one.
        generation_prompt: end with what stands before an assistant's next words.

    Raises:
        ValueError: the tokenizer has no chat template.
    """
    if tokenizer.chat_template is None:
        raise ValueError(
            "the tokenizer has no chat template; set data_args.template, for instance to one of "
            f"{sorted(TEMPLATES)}, or give rows with prompt and response instead of messages"
        )
    text: Any = tokenizer.apply_chat_template(  # Any: a text, when tokenize is False
        list(messages),  # type: ignore[arg-type]  # any mapping will do
        tokenize=False,
        add_generation_prompt=generation_prompt,
    )
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)


def conversation(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> Conversation:
    """Returns a conversation as token ids, with every assistant turn marked.

    A turn is what the template adds to the messages before it once these end with a generation prompt, so
    the role's header is not part of it and the turn's end is.

    Args:
        tokenizer: with a chat template.
        messages: in their order.

    Raises:
        ValueError: the template rewrites earlier messages when later ones follow, so turns cannot be told
            apart.
    """
    ids = chat_ids(tokenizer, messages)
    said = [False] * len(ids)
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = chat_ids(tokenizer, messages[:number], generation_prompt=True) if number else ()
        until = chat_ids(tokenizer, messages[: number + 1])
        if until[: len(before)] != before or ids[: len(until)] != until:
            raise ValueError(
                f"the chat template rewrites the messages before message {number} when more follow, so the "
                f"assistant's words cannot be told apart; choose another data_args.template, or give rows "
                f"with prompt and response"
            )
        said[len(before) : len(until)] = [True] * (len(until) - len(before))
    return Conversation(ids, tuple(said))
