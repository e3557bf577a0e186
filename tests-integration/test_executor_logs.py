"""What workers write reaches the driver once, under their name, and stands in a file of their own."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

TALK = textwrap.dedent(
    """
    import sys

    import ray  # before anything of ours: Ray has read its variables by then

    from roll_dispatch import Dispatch, register
    from roll_executor import Cluster, Worker, WorkerConfig
    from roll_resources import ResourceManager

    class Talker(Worker):
        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def talk(self):
            print("the same words")

    with ResourceManager(address=sys.argv[1]) as manager:
        with Cluster("talker", Talker, manager, WorkerConfig(name="talker", world_size=2)) as talker:
            for entry in talker.health():
                print("files", entry.rank, *entry.log_files, flush=True)
            talker.talk()
            sys.stdin.read()
    """
)


def test_a_line_of_two_ranks_is_two_lines_and_one_in_the_file_of_each(
    ray_session: str, tmp_path: Path
) -> None:
    script = tmp_path / "talk.py"
    script.write_text(TALK)
    driver = subprocess.Popen(
        [sys.executable, str(script), ray_session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "RAY_DEDUP_LOGS"},
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    seen: list[str] = []
    for line in driver.stdout:
        seen.append(re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip())
        if sum("the same words" in told for told in seen) == 2:
            break
    driver.stdin.close()
    seen += driver.stdout.read().splitlines()
    driver.stdout.close()
    assert driver.wait(60) == 0, seen
    told = sorted(line for line in seen if "the same words" in line)
    assert [re.sub(r"pid=\d+", "pid", line) for line in told] == [
        "(talker-0 pid) the same words",
        "(talker-1 pid) the same words",
    ]
    files = [line.split()[2:] for line in seen if line.startswith("files")]
    assert len(files) == 2
    assert set(files[0]).isdisjoint(files[1])
    for own in files:
        assert sum(Path(path).read_text().count("the same words") for path in own) == 1
