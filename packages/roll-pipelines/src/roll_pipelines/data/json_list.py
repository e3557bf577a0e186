"""The entries of a JSON list, each with the line on which it begins."""

import json
from collections.abc import Iterator


class JsonListError(ValueError):
    """A text is no JSON list; `line` says where."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why, line)
        self.why, self.line = why, line


class JsonList:
    """A JSON list that is read entry by entry.

    Example:
        >>> list(JsonList('[1,\\n {"a": 2}]').entries())
        [(1, 1), (2, {'a': 2})]
    """

    def __init__(self, text: str) -> None:
        """Keeps the text.

        Args:
            text: begins with a bracket, or white space before it.
        """
        self._text, self._at, self._line, self._counted = text, 0, 1, 0

    def entries(self) -> Iterator[tuple[int, object]]:
        """Yields the line and the value of each entry.

        Raises:
            JsonListError: the text is something else.
        """
        if not self._take("["):
            raise self._wrong("a list of rows must begin with a bracket; for one row a line use .jsonl")
        ended = self._take("]")
        while not ended:
            self._skip_space()
            line = self._line_here()
            yield line, self._value()
            ended = self._take("]")
            if not ended and not self._take(","):
                raise self._wrong("a comma or the end of the list must follow a row")
        self._skip_space()
        if self._at < len(self._text):
            raise self._wrong("nothing may follow the list")

    def _value(self) -> object:
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._text, self._at)
        except json.JSONDecodeError as broken:
            self._at = broken.pos
            raise self._wrong(broken.msg) from broken
        return value

    def _take(self, character: str) -> bool:
        self._skip_space()
        found = self._text.startswith(character, self._at)
        self._at += found
        return found

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _wrong(self, why: str) -> JsonListError:
        return JsonListError(why, self._line_here())
