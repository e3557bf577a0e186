"""The commands and their arguments; each imports what it needs when it is called."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="roll",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train language models and agents: one command for every pipeline.\n\n"
    "Exit codes: 0 done, 1 the run failed, 2 the configuration or command line is wrong "
    "(nothing was started), 130 stopped by Ctrl-C, 143 stopped by SIGTERM.",
)

Config = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="The configuration of one run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Values that replace those of the file, e.g. max_steps=10."
    ),
]
Pipeline = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="sft, dpo, distill, rlvr, or the dotted path of a class.")
]
Nodes = Annotated[int | None, typer.Option(help="Plan on this many nodes instead of num_nodes.")]
Devices = Annotated[
    int | None,
    typer.Option("--gpus-per-node", help="Plan on this many devices a node instead of num_gpus_per_node."),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The output_dir of a run.")]


@app.command()
def run(config: Config, overrides: Overrides = None) -> None:
    """Check a configuration and run its pipeline."""
    from roll_pipelines.cli.run import run_pipeline

    raise typer.Exit(run_pipeline(config, overrides or []))


@app.command()
def check(
    config: Config,
    overrides: Overrides = None,
    nodes: Nodes = None,
    devices: Devices = None,
    fields: Annotated[
        bool, typer.Option("--fields", help="Print who produces and consumes each field.")
    ] = False,
) -> None:
    """Say what is wrong with a configuration, or what it would run; start nothing."""
    from roll_pipelines.cli.describe import check_file

    raise typer.Exit(check_file(config, overrides or [], nodes=nodes, devices=devices, fields=fields))


@app.command()
def plan(
    config: Config,
    overrides: Overrides = None,
    nodes: Nodes = None,
    devices: Devices = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the picture to this file, too.")
    ] = None,
) -> None:
    """Print which worker would get which node and devices, as a table and as a picture; start nothing."""
    from roll_pipelines.cli.plan import plan_file

    raise typer.Exit(plan_file(config, overrides or [], nodes=nodes, devices=devices, svg_to=svg))


@app.command()
def replay(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="The folder of one recorded call.")],
    rank: Annotated[int, typer.Option(help="Which rank of the call.")],
    initialize: Annotated[
        bool, typer.Option(help="Call the worker's initialize first; not when it waits for other ranks.")
    ] = True,
    pdb: Annotated[bool, typer.Option("--pdb", help="Stop at the first line of the method.")] = False,
) -> None:
    """Run one rank of a recorded call again, alone in this process (see `Cluster.record`)."""
    from roll_pipelines.cli.replay import replay_rank

    raise typer.Exit(replay_rank(record, rank=rank, initialize=initialize, pdb=pdb))


@app.command("config")
def show_config(
    config: Config,
    overrides: Overrides = None,
    written: Annotated[
        bool, typer.Option("--written", help="Leave out defaults and derived values.")
    ] = False,
) -> None:
    """Print the merged configuration, with where each value comes from."""
    from roll_pipelines.cli.provenance import show_file

    raise typer.Exit(show_file(config, overrides or [], written_only=written))


@app.command()
def schema(pipeline: Pipeline) -> None:
    """Print the JSON Schema of a pipeline's YAML, for editors."""
    from roll_pipelines.cli.begin import print_schema

    raise typer.Exit(print_schema(pipeline))


@app.command()
def init(
    pipeline: Pipeline,
    to: Annotated[Path | None, typer.Option(help="The file to write; PIPELINE.yaml when left out.")] = None,
) -> None:
    """Write a commented YAML to begin with."""
    from roll_pipelines.cli.begin import write_template

    raise typer.Exit(write_template(pipeline, to=to))


@app.command()
def resume(run_dir: RunDir, overrides: Overrides = None) -> None:
    """Go on with a run after its newest whole checkpoint."""
    from roll_pipelines.cli.run import resume_run

    raise typer.Exit(resume_run(run_dir, overrides or []))


@app.command()
def doctor() -> None:
    """Say what is installed, which engines and devices work, and what to install for the rest."""
    from roll_pipelines.cli.doctor import diagnose

    raise typer.Exit(diagnose())


@app.command()
def report(run_dir: RunDir) -> None:
    """Write report.html from the files of a run, finished or not."""
    from roll_pipelines.cli.run import report_on

    raise typer.Exit(report_on(run_dir))


def main() -> None:
    """Runs the command line."""
    app()
