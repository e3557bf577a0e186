"""The scripts and manifests of docs/clusters.md, as far as they can be tried without Slurm and Kubernetes."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = Path(__file__).parents[1] / "docs" / "clusters.md"
SRUN = """
echo "srun $*" >> calls
while [ "${1#-}" != "$1" ]; do
  if [ "$1" = -w ]; then shift; fi
  shift
done
exec "$@"
"""
RAY = """
echo "ray $*" >> calls
case "$1" in
  status) [ "$(grep -c '^ray status' calls)" -ge 2 ] && [ "$(grep -c '^ray start' calls)" -ge "$STEPS" ] ;;
  start) exec sleep 60 ;;
esac
"""
ROLL = """
echo "roll $* at $RAY_ADDRESS, $RAY_AUTH_MODE" >> calls
trap 'echo terminated >> calls; exit 143' TERM
echo running
sleep 60 & wait
"""
"""Stand-ins that note how they are called; `ray status` succeeds when Ray is started, not at once."""


def block(language: str, holding: str) -> str:
    """Returns the block of the page that holds something."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (one,) = [text for text in found if holding in text]
    return str(one)


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with the page's script, and a PATH of stand-ins."""
    (tmp_path / "bin").mkdir()
    scontrol = 'echo "scontrol $*" >> calls; echo node1; echo node2; echo node3'
    for name, body in {"srun": SRUN, "ray": RAY, "roll": ROLL, "scontrol": scontrol}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "submit.sh").write_text(block("bash", "#SBATCH"))
    return tmp_path


def submit(folder: Path, *, nodes: int) -> subprocess.Popen[str]:
    own = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_NNODES": str(nodes),
        "SLURM_CPUS_PER_TASK": "64",
        "SLURM_GPUS_ON_NODE": "8",
        "STEPS": str(min(nodes, 2)),
    }
    return subprocess.Popen(
        ["bash", "submit.sh"],
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_slurm_script_starts_every_node_once_and_hands_sigterm_to_the_run(
    slurm: Path, nodes: int
) -> None:
    with submit(slurm, nodes=nodes) as script:
        assert script.stdout is not None
        try:
            assert script.stdout.readline() == "running\n"
            os.kill(script.pid, signal.SIGTERM)
            assert script.wait(60) == 143
        finally:
            os.killpg(script.pid, signal.SIGKILL)

    calls = (slurm / "calls").read_text().splitlines()
    resources = "--num-cpus=64 --num-gpus=8 --block"
    assert calls[:2] == ["scontrol show hostnames node[1-3]", "ray get-auth-token --generate"]
    head = f"ray start --head --node-ip-address=node1 --port=6379 {resources}"
    others = f"ray start --address=node1:6379 {resources}"
    steps = {f"srun --nodes=1 --ntasks=1 -w node1 {head}"}
    steps |= {f"srun --nodes=2 --ntasks=2 --exclude=node1 {others}"} if nodes > 1 else set()
    assert {call for call in calls if call.startswith("srun")} == steps
    assert calls.count("ray status --address node1:6379") >= 2
    run = f"roll run config.yaml num_nodes={nodes} num_gpus_per_node=8 at node1:6379, token"
    assert calls[-2:] == [run, "terminated"]


def test_the_slurm_script_ends_when_the_head_does_not_start(slurm: Path) -> None:
    (slurm / "bin" / "ray").write_text("#!/bin/bash\n[ $1 = get-auth-token ]\n")
    with submit(slurm, nodes=1) as script:
        assert script.wait(60) == 1
    assert "roll" not in (slurm / "calls").read_text()


def test_the_kuberay_job_has_what_its_operator_asks_for() -> None:
    job: Any = yaml.safe_load(block("yaml", "kind: RayJob"))  # Any: YAML
    assert (job["apiVersion"], job["kind"], bool(job["metadata"]["name"])) == ("ray.io/v1", "RayJob", True)
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert {"name", "image"} <= set(container)
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["groupName"]
    entry = spec["entrypoint"]
    devices = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert f"num_nodes={workers['replicas']} num_gpus_per_node={devices}" in entry
