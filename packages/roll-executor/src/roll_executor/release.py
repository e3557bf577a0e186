"""What happens to the other ranks when one has failed or a call is late."""

import time
from typing import TYPE_CHECKING, Any

from roll_executor.errors import CallTimeoutError, Where, WorkerError

if TYPE_CHECKING:
    from roll_executor.pending import OpenCall
    from roll_executor.workers import Workers

SETTLE_S = 0.3
"""Seconds in which peers that are about to end or to fail themselves may do so."""
NOT_THEIRS = ("roll-control", "PythonGCThread")
"""Starts of the names of threads that run none of the user's code."""
CONTROL_S = 1.0
"""Longest wait for the answer of a worker's control channel."""


def release_peers(call: "OpenCall", first: WorkerError) -> WorkerError:
    """Release the ranks that still run a failed call; return the error with what became of them."""
    outcomes = call.workers.outcomes(call.tickets, SETTLE_S)
    running = [rank for rank, outcome in outcomes.items() if outcome is None]
    failed = [rank for rank, outcome in outcomes.items() if isinstance(outcome, WorkerError)]
    notes = []
    if len(failed) > 1:
        notes.append(f"Ranks {failed} failed; this is the first that was seen.")
    notes += _release(call, running)
    return first.with_notes(*notes) if notes else first


def _release(call: "OpenCall", running: list[int]) -> list[str]:
    if not running:
        return []
    began = time.monotonic()
    call.workers.control(running, "abort", CONTROL_S)
    notes = [f"Ranks {running} were still running {call.method} and were told to leave it."]
    if call.kill_peers_after_s is None:
        return notes
    left = max(0.0, call.kill_peers_after_s - (time.monotonic() - began))
    tickets = [ticket for ticket in call.tickets if ticket.rank in set(running)]
    stuck = [rank for rank, outcome in call.workers.outcomes(tickets, left).items() if outcome is None]
    if stuck:
        call.workers.kill(stuck)
        notes.append(
            f"Ranks {stuck} did not leave within {call.kill_peers_after_s:g} s (kill_peers_after_s) "
            "and were killed: this cluster cannot be used any more."
        )
    return notes


def timed_out(call: "OpenCall") -> CallTimeoutError:
    """Release all ranks of a late call; return the error that says who answered and what the others do."""
    outcomes = call.workers.outcomes(call.tickets, 0.0)
    late = [rank for rank, outcome in outcomes.items() if outcome is None]
    answered = [rank for rank, outcome in outcomes.items() if outcome is not None]
    replies = call.workers.control(late, "stacks", CONTROL_S)
    lines = [_describe(call.workers.wheres[rank], replies.get(rank)) for rank in late]
    lines += call.workers.surroundings()
    where = call.workers.wheres[late[0] if late else 0]
    error = CallTimeoutError(
        f"{where.cluster}.{call.method} was not answered by all ranks within {call.timeout_s:g} s "
        f"(timeout_s): ranks {answered or 'none'} answered, ranks {late} did not. Look at their stacks "
        "below, then raise timeout_s or mend what they wait for",
        where=Where(
            cluster=where.cluster, rank=where.rank, node=where.node, pid=where.pid, method=call.method
        ),
        notes=tuple(lines),
    )
    notes = _release(call, late)
    return CallTimeoutError(error.message, where=error.where, notes=(*error.notes, *notes))


def release_stream(workers: "Workers", ranks: list[int], method: str, kill_after_s: float | None) -> None:
    """Tell the ranks that still run a generator method to leave it, and kill those that do not."""
    workers.control(ranks, "abort", CONTROL_S)
    if kill_after_s is None:
        return
    deadline = time.monotonic() + kill_after_s
    running = ranks
    while running and time.monotonic() < deadline:
        replies = workers.control(running, "status", CONTROL_S)
        running = [
            rank
            for rank, reply in replies.items()
            if any(name == method for name, _ in reply.get("running", []))
        ]
        time.sleep(0.05)
    workers.kill(running)


def _describe(where: Where, reply: dict[str, Any] | None) -> str:  # Any: JSON
    if reply is None:
        return f"{where} does not answer its control channel: its process is stopped, gone, or out of reach."
    running = (
        ", ".join(f"{name} for {seconds:.1f} s" for name, seconds in reply.get("running", [])) or "nothing"
    )
    lines = [f"{where} runs {running}; last sign of life {reply.get('idle_s', 0.0):.1f} s ago"]
    for name, stack in reply.get("stacks", {}).items():
        if name.startswith(NOT_THEIRS):
            continue
        lines.append(f"  thread {name}:\n{stack.rstrip()}")
    return "\n".join(lines)
