"""What a field of a configuration is for: the text below it in its class."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator


def field_texts(cls: type) -> dict[str, str]:
    """Returns the text below each field of a dataclass, those of its bases included.

    Args:
        cls: a dataclass whose source can be read.

    Example:
        >>> from roll_pipelines.config.arguments import StrategyArguments
        >>> field_texts(StrategyArguments)["strategy_config"]
        'Settings that only this engine understands, such as `tensor_parallel_size`.'
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found.update(_own_texts(base))
    return found


def _own_texts(cls: type) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return  # a class without a source file has no texts
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef), "the source of a class is a class"
    for field, below in zip(body.body, body.body[1:], strict=False):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(field, ast.AnnAssign)
            assert isinstance(field.target, ast.Name)
            if isinstance(below.value.value, str):
                yield field.target.id, " ".join(below.value.value.split())
