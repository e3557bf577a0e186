"""The processes of a Ray that this process has started: which of them have ended by themselves."""

from ray._private import worker

VITAL = ("raylet", "gcs_server")
"""Without these no call comes back: what a node runs, and what a cluster knows."""


def ended_daemons() -> list[str]:
    """Return the names of the vital processes that have ended; nothing for a Ray that was only joined."""
    node = getattr(worker, "_global_node", None)
    if node is None:
        return []
    return [f"{name} (pid {process.pid})" for name, process in node.dead_processes() if name in VITAL]
