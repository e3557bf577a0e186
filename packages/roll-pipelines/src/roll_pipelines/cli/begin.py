"""`roll init` and `roll schema`: a YAML to begin with, and the schema that editors check it by."""

import json
from pathlib import Path

from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.modules import find_modules_beside
from roll_pipelines.cli.output import refuse, say, tell
from roll_pipelines.config.pipelines import PipelineClassError, find_pipeline
from roll_pipelines.config.problems import ConfigError


def write_template(pipeline: str, *, to: Path | None) -> ExitCode:
    """Writes a commented YAML for a pipeline; an existing file is left as it is.

    Args:
        pipeline: a short name such as `rlvr`, or the dotted path of a class.
        to: the file; `<pipeline>.yaml` in the current directory when None.
    """
    from roll_pipelines.config.template import template

    target = to or Path(f"{pipeline.rpartition('.')[2].lower()}.yaml")
    if target.exists():
        tell(f"roll: {target} exists already; name another file with --to")
        return ExitCode.REFUSED
    find_modules_beside(target)
    try:
        found = find_pipeline(pipeline)
    except PipelineClassError as unknown:
        return refuse(ConfigError("roll init", [unknown.problem]))
    target.write_text(template(found.config_cls, pipeline=pipeline), encoding="utf-8")
    say(f"{target}: fill in what is marked ???, then `roll check {target}`")
    return ExitCode.DONE


def print_schema(pipeline: str) -> ExitCode:
    """Prints the JSON Schema of a pipeline's YAML.

    Args:
        pipeline: a short name such as `rlvr`, or the dotted path of a class.
    """
    from roll_pipelines.config.schema import schema_of

    find_modules_beside(Path("schema.json"))
    try:
        found = find_pipeline(pipeline)
    except PipelineClassError as unknown:
        return refuse(ConfigError("roll schema", [unknown.problem]))
    say(json.dumps(schema_of(found.config_cls, pipeline=pipeline), indent=2))
    return ExitCode.DONE
