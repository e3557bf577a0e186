"""`roll replay`: one rank of a recorded call, run again alone in this process, where a debugger works."""

from pathlib import Path
from pdb import Pdb

from roll_executor import RecordError, WorkerError, replay
from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.modules import find_modules_beside
from roll_pipelines.cli.output import say, set_up_logging, tell

SHOWN = 4000
"""Most characters of a result that are printed."""


class _Debugger(Pdb):
    """A debugger that knows whether it was told to quit; Python's ends the method without a word."""

    left = False

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()


def replay_rank(record: Path, *, rank: int, initialize: bool, pdb: bool) -> ExitCode:
    """Runs one rank of a recorded call and prints what it returns, or the worker's own traceback.

    Args:
        record: the folder of the call, which holds `call.json`.
        rank: which rank.
        initialize: whether to call the worker's `initialize` first.
        pdb: stop at the first line of the method.
    """
    set_up_logging()
    debugger = _Debugger() if pdb else None
    find_modules_beside(record / "call.json")
    try:
        result = replay(record, rank, initialize=initialize, debugger=debugger)
    except RecordError as refused:
        tell(f"roll: {refused}")
        return ExitCode.REFUSED
    except WorkerError as failed:
        tell(f"roll: {failed}")
        return ExitCode.FAILED
    if debugger is not None and debugger.left:
        tell("roll: left the debugger before the method had ended")
        return ExitCode.DONE
    text = repr(result)
    say(text if len(text) <= SHOWN else f"{text[:SHOWN]} ... ({len(text)} characters)")
    return ExitCode.DONE
