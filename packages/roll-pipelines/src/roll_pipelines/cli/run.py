"""`roll run`: from a YAML to a finished run directory, or to one message that says what went wrong."""

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from roll_pipelines.checkpoints import CheckpointNotFoundError
from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.modules import find_modules_beside
from roll_pipelines.cli.output import refuse, say, set_up_logging, tell
from roll_pipelines.config.load import Loaded, check_startable, load_config
from roll_pipelines.config.problems import ConfigError
from roll_pipelines.report import NoRunError, write_report
from roll_pipelines.run_directory import CONFIG_FILE
from roll_pipelines.runtime_watch import RuntimeEndedError

LAUNCH_FILE = "launch.json"
"""Where a run directory keeps the folders of the user's own modules."""


class Terminated(KeyboardInterrupt):  # of what a handler raises, only this ends a wait in Ray
    """SIGTERM has arrived."""


def run_pipeline(config: Path, overrides: Sequence[str]) -> ExitCode:
    """Runs the pipeline of a configuration and returns how it ended.

    Args:
        config: the YAML file.
        overrides: `key=value` in hydra's grammar.
    """
    set_up_logging()
    find_modules_beside(config)
    try:
        loaded = load_config(config, overrides)
        check_startable(loaded, machine_too=True)
    except ConfigError as refused:
        return refuse(refused)
    return launch(loaded)


def resume_run(run_dir: Path, overrides: Sequence[str]) -> ExitCode:
    """Goes on with a run after its newest whole checkpoint.

    Args:
        run_dir: the run directory.
        overrides: `key=value` for what shall differ from before, such as `max_steps`.
    """
    config = run_dir / CONFIG_FILE
    if not config.is_file():
        tell(f"roll: {run_dir} is no run directory: there is no {CONFIG_FILE} in it")
        return ExitCode.REFUSED
    sys.path[:0] = [folder for folder in _folders_of(run_dir) if folder not in sys.path]
    forced = [f"output_dir={json.dumps(str(run_dir))}"]
    if not any(override.startswith("resume_from_checkpoint=") for override in overrides):
        forced.append("resume_from_checkpoint=true")
    return run_pipeline(config, [*forced, *overrides])


def launch(loaded: Loaded) -> ExitCode:
    """Runs a configuration that was read and checked, and closes everything that was started.

    Args:
        loaded: the configuration.
    """
    run_dir = loaded.config.run_dir
    folders = list(dict.fromkeys([str(Path.cwd()), str(loaded.path.resolve().parent)]))
    tell(f"roll: {loaded.pipeline_cls.__name__} from {loaded.path}, run directory {run_dir}")
    # In hand before __init__ runs, so that a constructor that fails half-way can be closed.
    pipeline: Any = object.__new__(loaded.pipeline_cls)  # Any: the user's own class
    code, runtime_ended = ExitCode.DONE, False
    with _signals() as arrived:
        try:
            try:
                pipeline.__init__(loaded.config)
                _keep_folders(run_dir, folders)
                pipeline.run()
            finally:
                _close(pipeline)
        except KeyboardInterrupt as stopped:
            code = _code_of(stopped, arrived)
        except CheckpointNotFoundError as missing:
            tell(f"roll: {missing}")
            return ExitCode.REFUSED
        except ConfigError as refused:
            return refuse(refused)
        except Exception as failed:  # noqa: BLE001  # the one place that turns a failure into a message
            code, runtime_ended = _code_of(failed, arrived), isinstance(failed, RuntimeEndedError)
            if code is ExitCode.FAILED:
                tell(_explain(failed, run_dir))
    _finish(pipeline, run_dir, code)
    if runtime_ended:
        os._exit(code)  # what Ray does at exit waits for what is gone, or starts it anew
    return code


def _keep_folders(run_dir: Path, folders: Sequence[str]) -> None:
    """Remembers where the user's own modules were found, so that the run can be resumed from anywhere."""
    known = [folder for folder in _folders_of(run_dir) if folder not in folders]
    if run_dir.is_dir():
        (run_dir / LAUNCH_FILE).write_text(json.dumps({"folders": [*folders, *known]}), encoding="utf-8")


def _folders_of(run_dir: Path) -> list[str]:
    path = run_dir / LAUNCH_FILE
    return list(json.loads(path.read_text(encoding="utf-8"))["folders"]) if path.is_file() else []


@contextmanager
def _signals() -> Iterator[list[int]]:
    """SIGTERM unwinds like Ctrl-C; yields those that have arrived, since compiled code forgets which."""
    arrived: list[int] = []

    def terminate(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGTERM, before)


def _code_of(ended_by: BaseException, arrived: Sequence[int]) -> ExitCode:
    """A signal that arrives inside compiled code comes out as the cause of another error."""
    error: BaseException | None = ended_by
    while error is not None and not isinstance(error, RuntimeEndedError):  # its context is how it was told
        if isinstance(error, KeyboardInterrupt):
            return ExitCode.TERMINATED if arrived else ExitCode.INTERRUPTED
        error = error.__cause__ or error.__context__
    return ExitCode.FAILED


def _close(pipeline: object) -> None:
    close = getattr(pipeline, "close", None)
    if close is not None:
        close()


def _explain(failed: Exception, run_dir: Path) -> str:
    head = f"roll: the run failed: {type(failed).__name__}: {failed}"
    notes = "".join(f"\n  {note}" for note in getattr(failed, "__notes__", ()))
    if not run_dir.is_dir():
        return head + notes + "\n" + "".join(traceback.format_exception(failed))
    trace = run_dir / "error.txt"
    trace.write_text("".join(traceback.format_exception(failed)), encoding="utf-8")
    return f"{head}{notes}\n  the whole traceback: {trace}"


def _finish(pipeline: object, run_dir: Path, code: ExitCode) -> None:
    summarise = getattr(pipeline, "write_summary", None)
    if summarise is not None and hasattr(pipeline, "state"):
        summary = summarise(status=code.name.lower())
        if code is ExitCode.DONE:
            say("\n".join(f"{key}: {value}" for key, value in summary.items()))
    if (run_dir / "config.yaml").exists():
        say(f"report: {write_report(run_dir)}")
    if code is ExitCode.DONE:
        tell(f"roll: done, run directory {run_dir}")
        return
    checkpoints = sorted((run_dir / "checkpoints").glob("checkpoint-*"))
    how = {ExitCode.INTERRUPTED: "stopped by Ctrl-C", ExitCode.TERMINATED: "stopped by SIGTERM"}.get(
        code, "failed"
    )
    on = f"go on with: roll resume {run_dir}" if checkpoints else "there is no checkpoint yet"
    tell(f"roll: {how}, run directory {run_dir}; {on}")


def report_on(run_dir: Path) -> ExitCode:
    """Writes the report of a run directory.

    Args:
        run_dir: the directory.
    """
    try:
        say(f"report: {write_report(run_dir)}")
    except NoRunError as refused:
        tell(f"roll: {refused}")
        return ExitCode.REFUSED
    return ExitCode.DONE
