"""A plain container made into a configuration instance: every unknown key and wrong type at once."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from roll_pipelines.config.problems import Problem, nearest, one_of
from roll_pipelines.config.reference_names import IGNORED_BY_THE_REFERENCE, MISSING_HERE
from roll_pipelines.config.types import choices_of

T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, object]) -> tuple[T | None, list[Problem]]:
    """Returns an instance of a configuration dataclass, and everything in `values` that does not fit it.

    What does not fit is left at its default, so that rules across fields can still be checked on the rest.

    Args:
        cls: a dataclass, with dataclasses, or dicts and lists of them, as fields.
        values: the container: plain dicts, lists and scalars.

    Returns:
        The instance (None when it cannot be made at all) and the problems; without one, all was taken.
    """
    problems: list[Problem] = []
    instance = _dataclass(cls, values, "", problems)
    return (instance if isinstance(instance, cls) else None), problems


_SKIP = object()


def _dataclass(
    cls: type, values: object, path: str, problems: list[Problem], *, default: object = None
) -> object:
    if not isinstance(values, Mapping):
        hint = "leave it out for the defaults" if values is None else None
        rule = "must be a section with keys of its own"
        problems.append(Problem(path=path, rule=rule, value=values, hint=hint))
        return _SKIP
    hints = get_type_hints(cls)
    fields = {entry.name: entry for entry in dataclasses.fields(cls) if entry.init}
    before, accepted = len(problems), _given(default, cls)
    for key, value in values.items():
        inner = f"{path}.{key}" if path else str(key)
        if key not in fields:
            problems.append(_unknown(cls, str(key), value, inner))
            continue
        section = accepted.pop(key) if key in accepted else _default(fields[key])
        checked = _value(hints[key], value, inner, problems, default=section)
        if checked is not _SKIP:
            accepted[key] = checked
    try:
        return cls(**accepted)
    except (TypeError, ValueError) as refused:
        if len(problems) == before:
            problems.append(Problem(path=path, rule=str(refused), value=dict(values)))
        return _SKIP


def _default(entry: dataclasses.Field[Any]) -> object:  # Any: a field of any type
    """The section that a field has when nobody writes it; None when it is the plain one of its class."""
    factory = entry.default_factory
    return None if factory is dataclasses.MISSING or isinstance(factory, type) else factory()


def _given(default: object, cls: type) -> dict[str, object]:
    """What a default section was given, without what it derived, so that it can be derived anew."""
    if not isinstance(default, cls):
        return {}
    derived = getattr(default, "derived_fields", ())
    names = [entry.name for entry in dataclasses.fields(cls) if entry.init]
    return {name: getattr(default, name) for name in names if name not in derived}


def _value(
    hint: Any,  # Any: a type expression
    value: object,
    path: str,
    problems: list[Problem],
    *,
    default: object = None,
) -> object:
    choices = choices_of(hint)
    if value is None and type(None) in choices:
        return None
    section = next((choice for choice in choices if dataclasses.is_dataclass(choice)), None)
    only = len([choice for choice in choices if choice is not type(None)]) == 1
    if isinstance(section, type) and (isinstance(value, Mapping) or only):
        return _dataclass(section, value, path, problems, default=default)
    for choice in choices:
        origin, arguments = get_origin(choice), get_args(choice)
        if origin is dict and isinstance(value, Mapping) and dataclasses.is_dataclass(arguments[1]):
            made = {str(k): _value(arguments[1], v, f"{path}.{k}", problems) for k, v in value.items()}
            return {k: v for k, v in made.items() if v is not _SKIP}
        if origin is list and isinstance(value, list) and dataclasses.is_dataclass(arguments[0]):
            entries = [_value(arguments[0], v, f"{path}[{i}]", problems) for i, v in enumerate(value)]
            return [v for v in entries if v is not _SKIP]
    return _leaf(hint, value, path, problems)


def _leaf(hint: Any, value: object, path: str, problems: list[Problem]) -> object:  # Any: a type expression
    adapter = TypeAdapter[object](hint, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        # Strict JSON rules: no string becomes a number, yet a list may fill a tuple and a string a path.
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as refused:
        problems.append(
            Problem(path=_deepest(path, refused), rule=_rule(hint), value=value, hint=_way_out(hint, value))
        )
    except TypeError:
        problems.append(Problem(path=path, rule=_rule(hint), value=value))
    return _SKIP


def _deepest(path: str, refused: ValidationError) -> str:
    errors = refused.errors(include_url=False, include_input=False)
    if len(errors) != 1:
        return path
    for step in errors[0]["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _rule(hint: Any) -> str:  # Any: a type expression
    names = [describe(choice) for choice in choices_of(hint)]
    return "must be " + (" or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0])


def describe(hint: Any) -> str:  # Any: a type expression
    """Returns a type in the words of a YAML file.

    Example:
        >>> describe(list[int])
        'a list of integers'
    """
    words = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "null"}
    if hint in words:
        return words[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in arguments)
    plural = {int: "integers", float: "numbers", str: "strings", bool: "booleans"}
    if origin in (list, tuple, Sequence):
        return f"a list of {plural.get(arguments[0], 'entries')}"
    if origin in (dict, Mapping):
        return "a section of " + (plural.get(arguments[1]) or "keys and values")
    return getattr(hint, "__name__", str(hint))


def _way_out(hint: Any, value: object) -> str | None:  # Any: a type expression
    for choice in choices_of(hint):
        if get_origin(choice) is Literal and isinstance(value, str):
            return one_of([str(name) for name in get_args(choice)], value)
        if choice in (int, float) and isinstance(value, str):
            return "write the number without quotes"
        if choice is int and isinstance(value, float) and value == int(value):
            return f"{int(value)}"
    return None


def _unknown(cls: type, key: str, value: object, path: str) -> Problem:
    names = [entry.name for entry in dataclasses.fields(cls) if entry.init]
    if key in IGNORED_BY_THE_REFERENCE:
        rule = "unknown key: ROLL accepts it and ignores it"
        return Problem(path=path, rule=rule, value=value, hint=IGNORED_BY_THE_REFERENCE[key])
    elsewhere = _in_sections(cls, key)
    hint = MISSING_HERE.get(key) or nearest(key, names) or (f"write it as {elsewhere}" if elsewhere else None)
    return Problem(
        path=path,
        rule=f"unknown key of {cls.__name__}",
        value=value,
        hint=hint or f"known: {', '.join(sorted(names))}",
    )


def _in_sections(cls: type, key: str) -> str | None:
    for name, hint in get_type_hints(cls).items():
        for choice in choices_of(hint):
            if dataclasses.is_dataclass(choice) and key in {
                entry.name for entry in dataclasses.fields(choice)
            }:
                return f"{name}.{key}"
    return None
