"""Print one of the commands that a README shows, so that whoever runs it runs exactly what readers are told.

A command is named by a comment on the line before its block: `<!-- command: tests -->`. Needs only the
standard library, and any Python 3.

Usage: python tools/readme_command.py NAME [README]
"""

import re
import sys
from pathlib import Path

BLOCK = re.compile(
    r"^<!-- command: (?P<name>[\w-]+) -->\n```\w*\n(?P<command>.*?)^```$", re.MULTILINE | re.DOTALL
)


def commands(text: str) -> "dict[str, str]":
    """Return the named commands of a README's text.

    Raises:
        ValueError: two blocks have one name.
    """
    found: dict[str, str] = {}
    for block in BLOCK.finditer(text):
        if block["name"] in found:
            raise ValueError(f"the README names two blocks {block['name']!r}; give one of them another name")
        found[block["name"]] = block["command"].strip()
    return found


def main(arguments: "list[str]") -> int:
    """Print the command and return the exit code: 0 printed, 2 no such command."""
    name = arguments[0]
    readme = (
        Path(arguments[1]) if len(arguments) > 1 else Path(__file__).resolve().parent.parent / "README.md"
    )
    found = commands(readme.read_text(encoding="utf-8"))
    if name not in found:
        print(f"readme_command: {readme} has no command {name!r}; it has {sorted(found)}", file=sys.stderr)
        return 2
    print(found[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
