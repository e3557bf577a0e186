"""ROLL's names of options that mean the same here under another name: they are read as if written in ours."""

import dataclasses
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roll_pipelines.config.problems import Problem
from roll_pipelines.config.sources import Source, source_of
from roll_pipelines.config.tracker_names import PACKAGES

Values = dict[str, Any]  # Any: a container of a YAML file
REFUSED = object()
"""What a conversion returns for a value that means nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherName:
    """One option under ROLL's name."""

    path: str
    """Where ROLL has it; a `*` is any one key."""
    becomes: tuple[str, ...]
    """Where it stands here, `*` again being that key; nothing: it says what holds anyway."""
    convert: Callable[[object], object] = lambda value: value
    rule: str = ""
    """What a value must be that `convert` refuses."""


def _negated(value: object) -> object:
    return not value if isinstance(value, bool) else REFUSED


def _only(*accepted: object) -> Callable[[object], object]:
    return lambda value: value if value in accepted else REFUSED


OTHER_NAMES = (
    OtherName(
        path="num_return_sequences_in_group", becomes=("actor_infer.generating_args.num_return_sequences",)
    ),
    OtherName(path="pg_clip", becomes=("pg_clip_low", "pg_clip_high")),
    OtherName(path="student_pretrain", becomes=("pretrain",)),
    OtherName(path="question_key", becomes=("student.data_args.prompt",)),
    OtherName(path="answer_key", becomes=("student.data_args.response",)),
    OtherName(path="prompt_key", becomes=("sft_train.data_args.prompt",)),
    OtherName(path="response_key", becomes=("sft_train.data_args.response",)),
    OtherName(path="global_template", becomes=("@.data_args.template",)),
    OtherName(path="max_grad_norm", becomes=("@.training_args.max_grad_norm",)),
    OtherName(
        path="*.model_args.disable_gradient_checkpointing",
        becomes=("*.model_args.gradient_checkpointing",),
        convert=_negated,
        rule="must be true or false",
    ),
    OtherName(
        path="checkpoint_config.type",
        becomes=(),
        convert=_only("file_system"),
        rule="must be file_system: output_dir may be any fsspec URL",
    ),
    OtherName(
        path="*.generating_args.num_beams",
        becomes=(),
        convert=_only(1),
        rule="must be 1: answers are sampled, not searched for",
    ),
)
"""`@` is the role that learns."""

NULL_MEANS_DEFAULT = (
    "*.strategy_args.strategy_config",
    "*.model_args.model_type",
    "transfer_backend",
    "transfer_backend.backend_config",
)
"""Where a null of ROLL asks for what holds when the key is left out."""
LEARNING_ROLES = ("sft_train", "actor_train", "student")


def read_other_names(
    values: Mapping[str, Any], config_cls: type, sources: Mapping[str, Source]
) -> tuple[Values, dict[str, Source], list[Problem]]:
    """Returns a container with every option under our name, where each was written, and what cannot be read.

    Args:
        values: the composed container.
        config_cls: the configuration class; a field of its own keeps its name.
        sources: where each path was written.
    """
    read, placed, problems = _copied(values), dict(sources), list[Problem]()
    fields = {entry.name for entry in dataclasses.fields(config_cls)}
    for name in OTHER_NAMES:
        if name.path in fields:
            continue  # the user's own field
        for path in list(_paths(read, name.path)):
            targets = list(_targets(name, path, fields))
            if targets or not name.becomes:  # else the pipeline has no such option: an unknown key
                problems += _move(read, name, path, targets)
                placed |= {target: source for target in targets if (source := source_of(path, sources))}
    for pattern in NULL_MEANS_DEFAULT:
        for path in [path for path in _paths(read, pattern) if _at(read, path) is None]:
            _take(read, path)
    _trackers(read)
    return read, placed, problems


def _move(values: Values, name: OtherName, path: str, targets: list[str]) -> Iterator[Problem]:
    """Puts a value where it stands here, or says why it cannot."""
    written = _take(values, path)
    value = name.convert(written)
    if value is REFUSED:
        yield Problem(path=path, rule=name.rule, value=written, hint="leave it out")
        return
    for target in targets:
        if _at(values, target) is None:
            _put(values, target, value)
            continue
        rule = f"must not stand beside {target}, which it is another name of"
        yield Problem(path=path, rule=rule, value=value, hint="leave one of the two out")


def _trackers(values: Values) -> None:
    """ROLL has one tracker and gives it all of `tracker_kwargs`; `stdout` is its console."""
    if values.get("track_with") == "stdout":
        values["track_with"] = "console"
    name, settings = values.get("track_with"), values.get("tracker_kwargs")
    if (
        isinstance(name, str)
        and isinstance(settings, dict)
        and settings
        and not set(settings) & set(PACKAGES)
    ):
        values["tracker_kwargs"] = {name: settings}


def _targets(name: OtherName, path: str, fields: set[str]) -> Iterator[str]:
    role = next((role for role in LEARNING_ROLES if role in fields), "")
    for target in name.becomes:
        written = target.replace("*", path.partition(".")[0]).replace("@", role)
        if written.partition(".")[0] in fields:
            yield written


def _paths(values: Values, pattern: str, above: str = "") -> Iterator[str]:
    head, _, rest = pattern.partition(".")
    for key, value in values.items():
        if isinstance(key, str) and fnmatch.fnmatchcase(key, head):
            path = f"{above}.{key}" if above else key
            if not rest:
                yield path
            elif isinstance(value, dict):
                yield from _paths(value, rest, path)


def _at(values: Mapping[str, Any], path: str) -> object:
    found: Any = values  # Any: a container
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _take(values: Values, path: str) -> object:
    *above, last = path.split(".")
    section: Any = values  # Any: a container
    for key in above:
        section = section[key]
    return section.pop(last)


def _put(values: Values, path: str, value: object) -> None:
    *above, last = path.split(".")
    section: Any = values  # Any: a container
    for key in above:
        if not isinstance(section.get(key), dict):
            section[key] = {}
        section = section[key]
    section[last] = value


def _copied(values: Any) -> Any:  # Any: a container
    if isinstance(values, Mapping):
        return {key: _copied(value) for key, value in values.items()}
    return values
