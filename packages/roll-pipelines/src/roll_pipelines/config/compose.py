"""One YAML with its `defaults`, `${...}` and command-line overrides, made into one plain container."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from roll_pipelines.config.problems import ConfigError, Problem, nearest
from roll_pipelines.config.sources import COMMAND_LINE, Source, read_sources, shown


@dataclass(frozen=True, kw_only=True)
class Composed:
    """The merged configuration before any type is checked."""

    values: dict[str, object]
    """Plain dicts, lists and scalars; entries that could not be resolved are left out."""
    sources: dict[str, Source]
    """Where each path was written last."""
    problems: tuple[Problem, ...]
    """Interpolations that name nothing, and values that are missing."""


def compose_file(path: Path, overrides: Sequence[str] = ()) -> Composed:
    """Returns the container that a YAML file and overrides make.

    Args:
        path: the YAML file; its directory is where `defaults` are looked up.
        overrides: `key=value` in hydra's grammar; a key that the file does not have is added without a `+`.

    Raises:
        ConfigError: the file is missing, no YAML, or names a missing default, or an override does not parse.
    """
    file = _existing(path)
    parsed = _parse_overrides(file, overrides)
    GlobalHydra.instance().clear()
    try:
        with (
            warnings.catch_warnings(),
            initialize_config_dir(config_dir=str(file.parent), version_base="1.3"),
        ):
            warnings.simplefilter("ignore", UserWarning)
            groups = [o.input_line or "" for o in parsed if _chooses_a_file(o, file.parent)]
            config = compose(config_name=file.stem, overrides=groups)
            files = _files(file, groups)
            _apply(config, [o for o in parsed if not _chooses_a_file(o, file.parent)])
    except yaml.MarkedYAMLError as broken:
        raise ConfigError(str(path), [_syntax(broken, path)]) from broken
    except (HydraException, OmegaConfBaseException) as refused:
        hint = "see the hydra documentation on defaults and overrides"
        raise ConfigError(
            str(path), [Problem(path="", rule=_first(refused), hint=hint, file=str(path))]
        ) from refused
    sources = read_sources(files, [o.key_or_group for o in parsed if not o.is_delete()])
    values, problems = _resolve(config)
    return Composed(values=values, sources=sources, problems=tuple(problems))


def _existing(path: Path) -> Path:
    if path.is_file() and path.suffix == ".yaml":
        return path.resolve()
    folder = path.parent if path.parent.is_dir() else Path()
    close = nearest(path.name, [p.name for p in folder.glob("*.yaml")])
    hint = str(folder / close) if close else "give the path of a .yaml file"
    rule = "must be a file that ends in .yaml" if path.exists() else "must be an existing file"
    raise ConfigError(str(path), [Problem(path="CONFIG", rule=rule, value=str(path), hint=hint)])


def _parse_overrides(file: Path, overrides: Sequence[str]) -> list[Override]:
    parser, parsed, problems = OverridesParser.create(), [], []
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as refused:
            rule = f"must be key=value in hydra's grammar ({_first(refused)})"
            problems.append(Problem(path=text, rule=rule, value=text, file=COMMAND_LINE))
            continue
        if not override.key_or_group:
            problems.append(
                Problem(path=text, rule="must name a key before the =", value=text, file=COMMAND_LINE)
            )
        if override.is_sweep_override():
            rule = "must name one value: a run has one configuration"
            problems.append(Problem(path=override.key_or_group, rule=rule, value=text, file=COMMAND_LINE))
        parsed.append(override)
    if problems:
        raise ConfigError(str(file), problems)
    return parsed


def _chooses_a_file(override: Override, folder: Path) -> bool:
    """An override names a config group when there is a folder of that name with YAML files in it."""
    return any((folder / override.key_or_group).glob("*.yaml"))


def _apply(config: DictConfig, overrides: Sequence[Override]) -> None:
    """Sets values, whether or not the file has the key; a `~` takes one out."""
    OmegaConf.set_struct(config, False)
    for override in overrides:
        key = override.key_or_group
        if not override.is_delete():
            OmegaConf.update(config, key, override.value(), merge=True, force_add=True)
        elif OmegaConf.select(config, key, throw_on_missing=False) is not None:
            above, _, last = key.rpartition(".")
            del (OmegaConf.select(config, above) if above else config)[last]


def _files(file: Path, lines: list[str]) -> list[tuple[Path, str]]:
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None, "called inside initialize_config_dir"
    defaults = hydra.config_loader.compute_defaults_list(
        config_name=file.stem, overrides=lines, run_mode=RunMode.RUN
    )
    found = []
    for entry in defaults.defaults:
        candidate = file.parent / f"{entry.config_path}.yaml"
        if entry.config_path and not entry.config_path.startswith("hydra") and candidate.is_file():
            package = entry.package or ""
            found.append((candidate, "" if package == "_global_" else package))
    return found


def _syntax(broken: yaml.MarkedYAMLError, path: Path) -> Problem:
    mark = broken.problem_mark
    file = shown(Path(mark.name)) if mark is not None and Path(mark.name).is_file() else str(path)
    line = mark.line + 1 if mark is not None else None
    return Problem(
        path="", rule="must be valid YAML", value=broken.problem or str(broken), file=file, line=line
    )


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _resolve(config: DictConfig) -> tuple[dict[str, object], list[Problem]]:
    problems: list[Problem] = []
    values = _resolved(config, OmegaConf.to_container(config, resolve=False), "", problems)
    assert isinstance(values, dict), "a YAML configuration is a mapping"
    return {str(key): value for key, value in values.items()}, problems


_FAILED = object()


def _resolved(config: DictConfig, raw: object, path: str, problems: list[Problem]) -> object:
    if isinstance(raw, dict):
        pairs = (
            (key, _resolved(config, v, f"{path}.{key}" if path else str(key), problems))
            for key, v in raw.items()
        )
        return {key: value for key, value in pairs if value is not _FAILED}
    if isinstance(raw, list):
        entries = [_resolved(config, value, f"{path}[{i}]", problems) for i, value in enumerate(raw)]
        return [value for value in entries if value is not _FAILED]
    if raw == "???":
        problems.append(Problem(path=path, rule="must be given: the file marks it as missing", value=raw))
        return _FAILED
    if not isinstance(raw, str) or "${" not in raw:
        return raw
    try:
        value = OmegaConf.select(config, path, throw_on_missing=True)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as refused:
        named = re.findall(r"\$\{([\w.]+)\}", raw)
        rule = f"must name a value that exists ({_first(refused)})"
        problems.append(Problem(path=path, rule=rule, value=raw, hint=_known(config, named)))
        return _FAILED


def _known(config: DictConfig, named: list[str]) -> str | None:
    close = nearest(named[0], [str(key) for key in config]) if named else None
    return f"${{{close}}}" if close else None
