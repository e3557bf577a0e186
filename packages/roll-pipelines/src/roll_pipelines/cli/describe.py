"""`roll check`: what is wrong with a configuration, or what it would run, and where; nothing is started."""

from collections.abc import Sequence
from pathlib import Path

from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.output import refuse, say
from roll_pipelines.cli.plan import placed
from roll_pipelines.config.load import Loaded, check_startable, lacking_engines
from roll_pipelines.config.machine import devices_of
from roll_pipelines.config.problems import ConfigError, Problem


def check_file(
    config: Path, overrides: Sequence[str], *, nodes: int | None, devices: int | None, fields: bool = False
) -> ExitCode:
    """Validates, resolves and plans a configuration, and prints what it would run.

    Args:
        config: the YAML file.
        overrides: `key=value` in hydra's grammar.
        nodes: nodes to plan on instead of `num_nodes`.
        devices: devices a node to plan on instead of `num_gpus_per_node`.
        fields: print who produces and consumes each field of the batches, too.
    """
    try:
        loaded, placement = placed(config, overrides, nodes=nodes, devices=devices)
        check_startable(loaded, machine_too=False)
    except ConfigError as refused:
        return refuse(refused)
    say(_summary(loaded))
    say("")
    say(str(placement))
    if lacking := lacking_engines(loaded):
        say("\nwarning: this environment lacks libraries; a run whose workers stand in it is refused")
        say("\n".join(problem.render() for problem in lacking))
    return _fields(loaded) if fields else ExitCode.DONE


def _fields(loaded: Loaded) -> ExitCode:
    from roll_protocol import SchemaError, field_table

    schemas = getattr(loaded.pipeline_cls, "schemas", ())
    say("")
    if not schemas:
        say(f"fields: {loaded.pipeline_cls.__name__} declares none; set its class attribute `schemas`")
        return ExitCode.DONE
    try:
        say(field_table(schemas))
    except SchemaError as wrong:
        return refuse(ConfigError(str(loaded.path), [Problem(path="pipeline_cls", rule=str(wrong))]))
    return ExitCode.DONE


def _summary(loaded: Loaded) -> str:
    config = loaded.config
    name = f"{loaded.pipeline_cls.__module__}.{loaded.pipeline_cls.__qualname__}"
    lines = [
        f"{loaded.path}: ok",
        "",
        f"pipeline       {name}",
        f"configuration  {type(config).__qualname__}",
    ]
    lines += [
        f"runtime        {config.runtime}, {config.num_nodes} node(s), {devices_of(config)} device(s) each"
    ]
    every = f"a checkpoint every {config.save_steps} and" if config.save_steps else "a checkpoint"
    lines += [f"steps          {config.max_steps}, {every} at the end, seed {config.seed}"]
    lines += [f"run directory  {config.run_dir}", "", "roles"]
    rows = [("role", "workers", "strategy", "model", "worker class")]
    for path, role in config.started_roles().items():
        worker = (
            role.worker_cls if isinstance(role.worker_cls, str) else getattr(role.worker_cls, "__name__", "-")
        )
        strategy, model = role.strategy_args.strategy_name or "-", role.model_args.model_name_or_path or "-"
        rows.append((path, str(role.world_size), strategy, model, worker))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines += [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(lines)
