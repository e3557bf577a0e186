"""`roll plan`: which worker of a configuration would get which node and devices; nothing is started."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.modules import find_modules_beside
from roll_pipelines.cli.output import refuse, say, tell
from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.load import Loaded, load_config
from roll_pipelines.config.machine import devices_of
from roll_pipelines.config.problems import ConfigError, Problem
from roll_resources import DevicePool, Plan, PlanError, grid, plan, svg


def plan_file(
    config: Path,
    overrides: Sequence[str],
    *,
    nodes: int | None,
    devices: int | None,
    svg_to: Path | None = None,
) -> ExitCode:
    """Prints the placement of a configuration as a table and as a picture.

    Args:
        config: the YAML file.
        overrides: `key=value` in hydra's grammar.
        nodes: nodes to plan on instead of `num_nodes`.
        devices: devices a node to plan on instead of `num_gpus_per_node`.
        svg_to: a file for the picture; a picture that stands there is replaced.
    """
    try:
        _, placement = placed(config, overrides, nodes=nodes, devices=devices)
    except ConfigError as refused:
        return refuse(refused)
    if not placement.roles:
        say(f"{config} has no roles: there is nothing to place")
        return ExitCode.DONE
    say(str(placement))
    say("")
    say(grid(placement, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    if svg_to is not None:
        try:
            svg_to.write_text(svg(placement), encoding="utf-8")
        except OSError as failed:
            tell(f"roll: the picture cannot be written to {svg_to}: {failed.strerror}; name another file")
            return ExitCode.REFUSED
        tell(f"roll: the picture is in {svg_to}")
    return ExitCode.DONE


def placed(
    config: Path, overrides: Sequence[str], *, nodes: int | None, devices: int | None
) -> tuple[Loaded, Plan]:
    """Returns a configuration and its placement, on pretended nodes and devices when numbers are given.

    Args:
        config: the YAML file.
        overrides: `key=value` in hydra's grammar.
        nodes: nodes to plan on instead of `num_nodes`.
        devices: devices a node to plan on instead of `num_gpus_per_node`.

    Raises:
        ConfigError: the configuration is wrong, or the roles do not fit.
    """
    find_modules_beside(config)
    pretended = [f"num_nodes={nodes}"] if nodes is not None else []
    pretended += [f"num_gpus_per_node={devices}"] if devices is not None else []
    loaded = load_config(config, [*overrides, *pretended])
    return loaded, plan_of(loaded.config, name=str(config))


def plan_of(config: BaseConfig, *, name: str = "configuration") -> Plan:
    """Returns where every worker of a configuration's roles would stand.

    Args:
        config: the configuration.
        name: what to call it in an error.

    Raises:
        ConfigError: the roles do not fit.
    """
    pool = DevicePool.uniform(nodes=config.num_nodes, gpus_per_node=devices_of(config))
    try:
        return plan([role.role_request(path=path) for path, role in config.started_roles().items()], pool)
    except PlanError as refused:
        problems = [
            Problem(path="", rule=text) for text in getattr(refused, "problems", ()) or [str(refused)]
        ]
        raise ConfigError(name, problems) from refused
