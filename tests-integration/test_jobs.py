"""Runs that are sent with `ray job submit` to a Ray with a dashboard, which nothing else here has."""

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from environments import make_environment
from layout import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

MODULE = """
import os
import threading
from dataclasses import dataclass, field

import sent_words
from roll_dispatch import Dispatch, register
from roll_executor import Worker
from roll_pipelines import BaseConfig, BasePipeline, WorkerConfig


class Greeter(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def greet(self, wait):
        said = f"{os.environ['GREETING']} {sent_words.WORD} from {sent_words.__file__}"
        print(said, flush=True)
        if wait:
            open(wait, "w").close()
            threading.Event().wait(600)
        return said


@dataclass
class GreetConfig(BaseConfig):
    greeter: WorkerConfig = field(default_factory=lambda: WorkerConfig(worker_cls=Greeter, world_size=1))
    wait: str | None = None


class Greet(BasePipeline):
    def __init__(self, pipeline_config: GreetConfig):
        super().__init__(pipeline_config)
        role = pipeline_config.greeter
        specs = [("greeter", None, role.worker_cls, role)]
        self.greeter = self.create_clusters_parallel(specs)["greeter"]

    def run(self):
        for step in self.steps():
            self.summary["said"] = self.greeter.greet(self.pipeline_config.wait)
            self.end_step(step, {})
"""
YAML = """
pipeline_cls: sent_greet.Greet
max_steps: 1
track_with: [jsonl]
num_gpus_per_node: 0
"""
LEFT = """
import json, sys
import ray
from ray._private import state
ray.init(address=sys.argv[1], log_to_driver=False)
groups = [group["state"] for group in ray.util.placement_group_table().values()]
actors = [actor["ActorClassName"] for actor in state.actors().values() if actor["State"] != "DEAD"]
own = [name for name in actors if name != "JobSupervisor"]
print(json.dumps([[state for state in groups if state != "REMOVED"], own]))
"""
"""Prints what a Ray still holds."""


@dataclass(frozen=True)
class Dashboard:
    """A Ray with a dashboard, in an environment that has ray[default]."""

    environment: Path
    address: str
    """Of Ray itself."""
    url: str
    """Of the dashboard."""
    sent: Path
    """The folder that jobs are sent with."""

    def job(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `ray job`."""
        command = [str(self.environment / "bin" / "ray"), "job", arguments[0], "--address", self.url]
        return subprocess.run(
            [*command, *arguments[1:]],
            env=variables(),
            cwd=self.sent,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def left(self) -> list[list[str]]:
        """Returns the states of placement groups and the classes of actors that stand."""
        command = [sys.executable, "-c", LEFT, self.address]
        done = subprocess.run(command, env=variables(), capture_output=True, text=True, check=True)
        found: list[list[str]] = json.loads(done.stdout)
        return found


def variables() -> dict[str, str]:
    """Returns this process's environment for programs that know of no Ray."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")}
    folder = str(Path(sys.executable).parent)
    own = {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "NO_PROXY": "*", "NO_COLOR": "1"}
    return {**kept, **own, "PATH": f"{folder}{os.pathsep}{kept['PATH']}"}


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on, of those that neither Ray nor the kernel hands out."""
    with ExitStack() as stack:
        found: list[int] = []
        for port in random.sample(range(20_000, 32_000), 100):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
            if len(found) == count:
                return found
        raise AssertionError("no free ports")


def until(true: Callable[[], bool], *, what: str, patience_s: float = 120.0) -> None:
    """Waits for something."""
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come in {patience_s:g} s"
        threading.Event().wait(0.1)


def is_up(url: str) -> bool:
    """Returns whether something answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Dashboard]:
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="j", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(temporary))
        python = make_environment(ROOT, folder / "env", ["ray[default]"], python=Path(sys.executable))
        ours = next(path for path in sys.path if path.endswith("site-packages"))
        theirs = next((folder / "env" / "lib").glob("python3*/site-packages"))
        (theirs / "workspace.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        sent = folder / "sent"
        sent.mkdir()
        (sent / "sent_greet.py").write_text(MODULE)
        (sent / "sent_words.py").write_text('WORD = "friends"\n')
        (sent / "greet.yaml").write_text(YAML)
        port, web, agent, metrics = free_ports(4)
        command = [str(python.with_name("ray")), "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
        command += [f"--port={port}", "--include-dashboard=true", f"--dashboard-port={web}"]
        command += [f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}"]
        command += ["--num-cpus=1", "--object-store-memory=100000000", f"--temp-dir={folder / 'r'}"]
        log = stack.enter_context((folder / "head.txt").open("w+"))
        head = subprocess.Popen(
            [*command, "--disable-usage-stats"], env=variables(), stdout=log, stderr=log, cwd=folder
        )
        stack.callback(end, head)
        found = Dashboard(folder / "env", f"127.0.0.1:{port}", f"http://127.0.0.1:{web}", sent)
        parts = (f"{found.url}/api/version", f"http://127.0.0.1:{agent}/api/local_raylet_healthz")
        until(lambda: head.poll() is not None or all(map(is_up, parts)), what="the dashboard and its agent")
        assert head.poll() is None, (folder / "head.txt").read_text()
        yield found


def end(head: subprocess.Popen[bytes]) -> None:
    """Ends a head and all that it has started."""
    family = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
    head.kill()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    head.wait()


def test_a_job_runs_with_the_code_and_variables_that_it_was_sent_with(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    environment = json.dumps({"env_vars": {"GREETING": "hello"}})
    sent = ["--working-dir", ".", "--runtime-env-json", environment]
    done = dashboard.job("submit", *sent, "--", "roll", "run", "greet.yaml", f"output_dir={run}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "done"
    (said,) = summary["said"]
    assert said.startswith("hello friends from ")
    assert "working_dir_files" in said, "the module that was sent, not the one that stands here"
    until(lambda: dashboard.left() == [[], []], what="the end of the job's actors", patience_s=30.0)


def test_a_job_that_is_stopped_leaves_nothing_behind(dashboard: Dashboard, tmp_path: Path) -> None:
    run = tmp_path / "run"
    waits = tmp_path / "waits"
    # Ray gives a job that it stops three seconds, which is short on a busy machine.
    environment = json.dumps({"env_vars": {"GREETING": "stay", "RAY_JOB_STOP_WAIT_TIME_S": "120"}})
    sent = ["--no-wait", "--submission-id", "stopped", "--working-dir", "."]
    entry = ["roll", "run", "greet.yaml", f"output_dir={run}", f"wait={waits}"]
    submitted = dashboard.job("submit", *sent, "--runtime-env-json", environment, "--", *entry)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    until(waits.exists, what="a worker that waits")
    assert dashboard.left() == [["CREATED"], ["SyncActor"]]
    line = re.compile(r"\(greeter-0 .*stay friends")
    until(lambda: line.search(dashboard.job("logs", "stopped").stdout) is not None, what="the worker's line")

    stopped = dashboard.job("stop", "stopped")

    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "'stopped' was stopped" in stopped.stdout + stopped.stderr
    assert json.loads((run / "summary.json").read_text())["status"] == "terminated"
    until(lambda: dashboard.left() == [[], []], what="the end of the job's actors", patience_s=30.0)
