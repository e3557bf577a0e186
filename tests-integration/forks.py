"""Runs of `roll` that start at once: one process imports everything, and each run is a child of it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SERVER = """
import json, os, sys

import hydra, reasoning_gym, torch.distributed.checkpoint, transformers.models.llama.modeling_llama
import roll_pipelines.distill, roll_pipelines.dpo, roll_pipelines.rlvr, roll_pipelines.sft
import roll_pipelines.cli.run, roll_pipelines.report
from roll_strategies import load_strategy

for engine in ("fsdp2_train", "hf_infer"):
    load_strategy(engine)


def become(order):
    os.chdir(order["cwd"])
    out = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = ["roll", *order["arguments"]]
    from roll_pipelines.cli import main

    main()


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        become(json.loads(line))
        sys.exit("roll came back")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(status), flush=True)
"""


class Forks:
    """Starts runs, one after the other."""

    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._server = server

    def run(self, *arguments: str, cwd: Path, output: Path) -> int:
        """Runs `roll` with these arguments, and returns its exit code, or minus the signal that ended it.

        Args:
            arguments: of the command line.
            cwd: where it runs.
            output: gets what it writes to either stream.
        """
        order = {"arguments": arguments, "cwd": str(cwd), "output": str(output)}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return int(json.loads(self._server.stdout.readline()))


@contextlib.contextmanager
def open_forks(environment: Mapping[str, str]) -> Iterator[Forks]:
    """Gives a process from which runs are forked, and ends it.

    Args:
        environment: of the process and of all runs.
    """
    with subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environment),
    ) as server:
        try:
            yield Forks(server)
        finally:
            assert server.stdin is not None
            server.stdin.close()
