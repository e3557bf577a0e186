"""From a YAML file to a checked configuration instance."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.compose import compose_file
from roll_pipelines.config.engines import doubtful_engines, missing_engines
from roll_pipelines.config.machine import Machine, joined_ray, missing_hardware
from roll_pipelines.config.other_names import read_other_names
from roll_pipelines.config.pipelines import PipelineClassError, find_pipeline, worker_problems
from roll_pipelines.config.problems import ConfigError, Problem
from roll_pipelines.config.rules import find_problems, without_followers
from roll_pipelines.config.sources import Source, source_of
from roll_pipelines.config.validate import build

logger = logging.getLogger(__name__)

LAUNCHER_KEYS = ("pipeline_cls", "config_cls")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A configuration that was read from a file, checked, and not yet run."""

    path: Path
    """The file."""
    pipeline_cls: type
    """The pipeline that it starts."""
    config: BaseConfig
    """The instance of the pipeline's configuration class."""
    values: Mapping[str, object]
    """What was written, merged."""
    sources: Mapping[str, Source]
    """Where each path was written last."""


def load_config(path: str | Path, overrides: Sequence[str] = (), *, machine: Machine | None = None) -> Loaded:
    """Returns the checked configuration that a YAML file and overrides make.

    Args:
        path: the YAML file.
        overrides: `key=value` in hydra's grammar.
        machine: what the rules may know of the machine; read here when None.

    Raises:
        ConfigError: anything is wrong with it; the error lists everything.

    Example:
        >>> load_config("missing.yaml")
        Traceback (most recent call last):
            ...
        roll_pipelines.config.problems.ConfigError: missing.yaml: 1 problem
        <BLANKLINE>
        CONFIG
          value: 'missing.yaml'
          rule:  must be an existing file
          try:   give the path of a .yaml file
    """
    path = Path(path)
    composed = compose_file(path, overrides)
    values = dict(composed.values)
    names = {key: values.pop(key, None) for key in LAUNCHER_KEYS}
    try:
        found = find_pipeline(names["pipeline_cls"], names["config_cls"])
    except PipelineClassError as refused:
        raise ConfigError(
            str(path), _placed([*composed.problems, refused.problem], composed.sources, path)
        ) from refused
    values, sources, other = read_other_names(values, found.config_cls, composed.sources)
    config, typed = build(found.config_cls, values)
    problems = [*composed.problems, *other, *typed]
    if config is not None:
        problems += without_followers(find_problems(config, machine or Machine.here()), problems)
    if problems:
        raise ConfigError(str(path), _placed(problems, sources, path))
    assert config is not None, "a configuration without problems was built"
    return Loaded(
        path=path,
        pipeline_cls=found.pipeline_cls,
        config=config,
        values=composed.values,
        sources=sources,
    )


def check_startable(loaded: Loaded, *, machine_too: bool) -> None:
    """Raises when a role's worker class cannot be imported, or this machine lacks what the run asks for.

    Args:
        loaded: the configuration.
        machine_too: whether the run shall start here, so that this machine must have the nodes, devices and
            libraries.

    Raises:
        ConfigError: it could not start; the error lists everything.
    """
    problems = list(worker_problems(loaded.config))
    if machine_too:
        ray_address = joined_ray()
        problems += missing_hardware(loaded.config, ray_address=ray_address)
        problems += missing_engines(loaded.config, ray_address=ray_address)
    if problems:
        raise ConfigError(str(loaded.path), _placed(problems, loaded.sources, loaded.path))


def check_config(config: BaseConfig, *, machine: Machine | None = None) -> None:
    """Raises when a configuration that was built in Python breaks a rule.

    Args:
        config: the configuration.
        machine: what the rules may know of the machine; read here when None.

    Raises:
        ConfigError: the configuration breaks rules; the error lists all of them.
    """
    problems = list(find_problems(config, machine or Machine.here()))
    if problems:
        raise ConfigError(type(config).__name__, problems)


def lacking_engines(loaded: Loaded) -> list[Problem]:
    """Returns the roles whose engine lacks a library in this environment.

    Args:
        loaded: the configuration.
    """
    asks = (missing_engines, doubtful_engines)
    problems = [problem for ask in asks for problem in ask(loaded.config, ray_address=None)]
    return _placed(problems, loaded.sources, loaded.path)


def check_engines(config: BaseConfig) -> None:
    """Raises when a role's engine lacks its library, before anything starts.

    Where the workers run in another environment than this process, it is only said.

    Args:
        config: the configuration.

    Raises:
        ConfigError: roles cannot start; the error lists all of them.
    """
    ray_address = joined_ray()
    if missing := list(missing_engines(config, ray_address=ray_address)):
        raise ConfigError(type(config).__name__, missing)
    for doubtful in doubtful_engines(config, ray_address=ray_address):
        text = "the workers' nodes must have what this driver has not:\n%s"
        logger.warning(text, doubtful.render())


def _placed(problems: Sequence[Problem], sources: Mapping[str, Source], path: Path) -> list[Problem]:
    placed = []
    for problem in problems:
        source = source_of(problem.path, sources)
        if problem.file is None:
            problem = problem.at(
                file=source.file if source else str(path), line=source.line if source else None
            )
        placed.append(problem)
    return sorted(placed, key=lambda p: (p.file or "", p.line or 0))
