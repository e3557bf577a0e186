"""Roles whose engine needs a library that is not installed here: said before anything starts."""

from collections.abc import Iterator

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.problems import Problem
from roll_pipelines.config.worker_config import WorkerConfig


def missing_engines(config: BaseConfig, *, ray_address: str | None) -> Iterator[Problem]:
    """Yields every role that cannot start: its workers run in this environment, which lacks a library.

    Args:
        config: the configuration.
        ray_address: the Ray that the run joins; None when its workers run on this machine.
    """
    for path, role in config.started_roles().items():
        if not _runs_elsewhere(role, config, ray_address=ray_address):
            yield from _missing(path, role)


def doubtful_engines(config: BaseConfig, *, ray_address: str | None) -> Iterator[Problem]:
    """Yields every role whose engine lacks a library here, and whose workers run in another environment.

    Args:
        config: the configuration.
        ray_address: as for `missing_engines`.
    """
    for path, role in config.started_roles().items():
        if _runs_elsewhere(role, config, ray_address=ray_address):
            yield from _missing(path, role)


def _runs_elsewhere(role: WorkerConfig, config: BaseConfig, *, ray_address: str | None) -> bool:
    """Nodes of a joined Ray have environments of their own, and a role may be given more folders."""
    more_folders = "PYTHONPATH" in {**config.system_envs, **role.system_envs}
    return config.runtime == "ray" and (bool(ray_address) or more_folders)


def _missing(path: str, role: WorkerConfig) -> Iterator[Problem]:
    from roll_strategies import UnknownStrategy, missing_library, strategy_names

    name = role.strategy_args.strategy_name
    if name is None:
        return
    try:
        missing = missing_library(name)
    except UnknownStrategy:
        return  # a rule of every configuration says so, with the nearest name
    if missing is None:
        return
    working = [other for other in strategy_names() if missing_library(other) is None]
    yield Problem(
        path=f"{path}.strategy_args.strategy_name",
        rule=f"needs the library {missing.name}, which is not installed here",
        value=name,
        hint=f"{missing.remedy}; or take an engine that works here: {', '.join(working)}",
    )
