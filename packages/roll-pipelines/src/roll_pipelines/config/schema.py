"""The JSON Schema of a pipeline's YAML, with which editors complete and check it."""

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from roll_pipelines.config.container import to_container
from roll_pipelines.config.documented import field_texts
from roll_pipelines.config.types import choices_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]  # Any: JSON


def schema_of(config_cls: type, *, pipeline: str) -> Schema:
    """Returns the JSON Schema of the YAML files of one pipeline.

    Args:
        config_cls: the pipeline's configuration class.
        pipeline: the pipeline's name, as `pipeline_cls` in the YAML.
    """
    sections: Schema = {}
    whole = _section(config_cls, sections)
    launcher: Schema = {
        "pipeline_cls": {"type": "string", "description": f"The pipeline; `{pipeline}` for this schema."},
        "config_cls": {"type": "string", "description": "The dotted path of the configuration class."},
        "defaults": {"type": "array", "description": "Other YAML files that this one builds on."},
    }
    whole["properties"] = {**launcher, **whole["properties"]}
    return {"$schema": DIALECT, "title": f"{pipeline} pipeline", **whole, "$defs": sections}


def _section(cls: type, sections: Schema) -> Schema:
    hints, texts = get_type_hints(cls), field_texts(cls)
    properties: Schema = {}
    for entry in dataclasses.fields(cls):
        if not entry.init:
            continue
        schema = _value(hints[entry.name], sections)
        if entry.name in texts:
            schema = {**schema, "description": texts[entry.name]}
        if isinstance(entry.default, str | int | float | bool) or entry.default is None:
            schema = {**schema, "default": to_container(entry.default)}
        properties[entry.name] = schema
    described = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    return {
        "type": "object",
        "description": described,
        "properties": properties,
        "additionalProperties": False,
    }


def _value(hint: Any, sections: Schema) -> Schema:  # Any: a type expression
    choices = choices_of(hint)
    if len(choices) > 1:
        return {"anyOf": [_or_interpolated(_value(choice, sections)) for choice in choices]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in sections:
            sections[hint.__name__] = {}
            sections[hint.__name__] = _section(hint, sections)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is dict and dataclasses.is_dataclass(arguments[1]):
        return {"type": "object", "additionalProperties": _value(arguments[1], sections)}
    if origin is list and dataclasses.is_dataclass(arguments[0]):
        return {"type": "array", "items": _value(arguments[0], sections)}
    return _or_interpolated(_leaf(hint))


def _leaf(hint: Any) -> Schema:  # Any: a type expression
    if isinstance(hint, type) and issubclass(hint, type):
        return {"type": "string", "description": "The dotted path of a class."}
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError):
        return {}


def _or_interpolated(schema: Schema) -> Schema:
    """A value of any type may be written as `${other.key}`."""
    if schema.get("type") in ("integer", "number", "boolean") or "enum" in schema:
        return {"anyOf": [schema, {"type": "string", "pattern": r"^\$\{.+\}$"}]}
    return schema
