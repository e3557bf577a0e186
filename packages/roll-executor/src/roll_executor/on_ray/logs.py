"""What a worker wrote last, read from the log files that Ray keeps per worker."""

import os
from collections import deque

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from roll_executor.on_ray.facts import Facts

NUM_LINES = 20
NUM_BYTES = 64_000
"""How much of the end of a file is looked at: a worker may have written gigabytes."""
NOISE = (":actor_name:", ":task_name:", ":job_id:")
"""Starts of lines that Ray writes for itself."""


def last_lines(facts: Facts) -> tuple[str, ...]:
    """Return one note with a worker's last lines and its log files; nothing when it wrote nothing."""
    if not facts.log_files:
        return ()
    if facts.node_id == ray.get_runtime_context().get_node_id():
        tails = _tails(facts.log_files, facts.pid)
    else:
        tails = _remote_tails(facts)
    shown = [line for tail in tails.values() for line in tail]
    if not shown:
        return ()
    files = ", ".join(facts.log_files)
    return (f"Last lines of pid {facts.pid} ({files} on node {facts.node_ip}):\n  " + "\n  ".join(shown),)


def _remote_tails(facts: Facts) -> dict[str, list[str]]:
    affinity = NodeAffinitySchedulingStrategy(node_id=facts.node_id, soft=False)
    reader = ray.remote(num_cpus=0, max_retries=0)(_tails).options(scheduling_strategy=affinity)
    reading = reader.remote(facts.log_files, facts.pid)
    try:
        found: dict[str, list[str]] = ray.get(reading, timeout=2.0)
    except (ray.exceptions.RayError, TimeoutError):
        return {}  # the node is gone, or too busy to be asked: the error itself matters more
    return found


def _tails(paths: tuple[str, ...], pid: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        if os.path.exists(path):
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - NUM_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
            kept = (line.rstrip() for line in lines if line.strip() and not line.startswith(NOISE))
            found[path] = list(deque(kept, maxlen=NUM_LINES))
    return found
