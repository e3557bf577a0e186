"""The workers of one cluster as Ray actors."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from roll_executor.control import ask_many, health_of
from roll_executor.errors import Where, WorkerError
from roll_executor.host import Header, Status
from roll_executor.on_ray.facts import Facts, end_process, lives
from roll_executor.on_ray.failures import translate
from roll_executor.on_ray.logs import last_lines
from roll_executor.workers import END_S, Health, Outcome, Ticket
from roll_resources.on_ray import available_per_node

if TYPE_CHECKING:
    from roll_executor.on_ray.launch import Starter

SMALL = (type(None), bool, int, float)
"""Values that cost less inside the call than beside it."""
SMALL_TEXT = 1024
"""Characters up to which text does, too."""


class RayWorkers:
    """Actor handles and addresses of one cluster, which can be pickled into other actors.

    Args:
        actors: handles in rank order.
        facts: what each told of itself.
        name: the cluster.
        token: what the control channels want to hear.
        starter: starts them again; None in a copy, which neither ends nor restarts anything.
    """

    def __init__(
        self,
        actors: Sequence[Any],  # Any: Ray's actor handles have no type of their own for our methods
        *,
        facts: Sequence[Facts],
        name: str,
        token: str,
        starter: "Starter | None" = None,
    ) -> None:
        self.actors = list(actors)
        self.facts = list(facts)
        self._name = name
        self._token = token
        self._starter = starter
        self._calls = [actor.call.options(num_returns=2) for actor in actors]
        self._whole_calls = [actor.call_whole for actor in actors]
        self.num_puts = 0
        """How many payloads have been put into the object store."""

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        return _restore, (self.actors, self.facts, self._name, self._token)

    @property
    def wheres(self) -> list[Where]:
        """Node and process of every rank."""
        return [
            Where(cluster=self._name, rank=rank, node=facts.node_ip, pid=facts.pid)
            for rank, facts in enumerate(self.facts)
        ]

    def share(self, value: object) -> object:
        """Put a value into the object store once; what is tiny, or there already, stays as it is."""
        if isinstance(value, SMALL) or (isinstance(value, str | bytes) and len(value) < SMALL_TEXT):
            return value
        if isinstance(value, ray.ObjectRef):
            return value
        self.num_puts += 1
        return ray.put(value)

    def submit(
        self,
        rank: int,
        header: Header,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        whole: bool = False,
    ) -> Ticket:
        """Send one call to one rank."""
        try:
            if whole:
                both = self._whole_calls[rank].remote(header.wire(), *args, **kwargs)
                return Ticket(rank, both, both, header.method, whole=True)
            result, status = self._calls[rank].remote(header.wire(), *args, **kwargs)
        except ray.exceptions.RayError as error:
            raise self._translate(error, rank, header.method) from error
        return Ticket(rank, result, status, header.method)

    def stream(
        self, rank: int, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Any]:
        """Send one call of a generator method."""
        method = self.actors[rank].stream.options(num_returns="streaming")
        source: Iterator[Any] = method.remote(header.wire(), *args, **kwargs)
        return source

    def gather(
        self, tickets: Sequence[Ticket], collecting: Sequence[int], timeout_s: float | None
    ) -> tuple[dict[int, Any], dict[int, Status]]:
        """Wait for all calls; fetch the results of the collecting ranks only."""
        apart = [ticket for ticket in tickets if ticket.rank in collecting and not ticket.whole]
        wanted = [ticket.result for ticket in apart]
        try:
            # The first failure ends the wait: Ray returns as soon as one of the objects is an error.
            found = ray.get([*(ticket.status for ticket in tickets), *wanted], timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as late:
            raise TimeoutError(str(late)) from None
        except ray.exceptions.RayError as error:
            raise self._first_error(tickets, error) from None
        outputs = {ticket.rank: result for ticket, result in zip(apart, found[len(tickets) :], strict=True)}
        statuses: dict[int, Status] = {}
        for ticket, told in zip(tickets, found, strict=False):
            if ticket.whole and ticket.rank in collecting:
                outputs[ticket.rank] = told[0]
            statuses[ticket.rank] = Status.from_wire(told[1] if ticket.whole else told)
        return outputs, statuses

    def _first_error(self, tickets: Sequence[Ticket], error: BaseException) -> WorkerError:
        for outcome in self.outcomes(tickets, 0.0).values():
            if isinstance(outcome, WorkerError):
                return self.explained(outcome)
        return self.explained(self._translate(error, tickets[0].rank, tickets[0].method))

    def explained(self, error: WorkerError) -> WorkerError:
        """Return an error with what its worker wrote last; one of another cluster as it is."""
        if error.cluster != self._name or error.rank >= len(self.facts):
            return error
        return error.with_notes(*last_lines(self.facts[error.rank]))

    def outcomes(self, tickets: Sequence[Ticket], timeout_s: float) -> dict[int, Outcome]:
        """Return how each call ended, waiting at most ``timeout_s`` for those that have not."""
        waiting = [ticket.status for ticket in tickets]
        done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=timeout_s, fetch_local=False)
        ended = set(done)
        found: dict[int, Outcome] = {}
        for ticket in tickets:
            if ticket.status not in ended:
                found[ticket.rank] = None
                continue
            try:
                told = ray.get(ticket.status)
                found[ticket.rank] = Status.from_wire(told[1] if ticket.whole else told)
            except ray.exceptions.RayError as error:
                found[ticket.rank] = self._translate(error, ticket.rank, ticket.method)
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.get(ticket.result, timeout=0)  # else Ray reports it as unhandled
        return found

    def _translate(self, error: BaseException, rank: int, method: str = "") -> WorkerError:
        return translate(error, replace(self.wheres[rank], method=method))

    def control(self, ranks: Sequence[int], command: str, timeout_s: float) -> dict[int, dict[str, Any]]:
        """Send a command to workers even while they are busy."""
        return ask_many([facts.control for facts in self.facts], ranks, self._token, command, timeout_s)

    def health(self) -> list[Health]:
        """Return how every worker is, whatever it does."""
        replies = self.control(range(len(self.actors)), "status", 1.0)
        missing = [rank for rank in range(len(self.actors)) if rank not in replies]
        asked = {rank: self.actors[rank].prepare.remote(False) for rank in missing}
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=1.0, fetch_local=False)
        found = []
        for rank, where in enumerate(self.wheres):
            state = "silent"
            if rank in asked:
                state = "dead" if _failed(asked[rank]) else "silent"
            found.append(
                health_of(rank, where, replies.get(rank), missing=state, log_files=self.facts[rank].log_files)
            )
        return found

    def revive(self) -> list[int]:
        """Build the workers anew whose processes Ray has started again; return their ranks."""
        if self._starter is None:
            return []
        ranks = range(len(self.actors))
        facts = self._starter.prepare_again(ranks)
        self.facts = self._starter.facts = facts
        rebuilt = [rank for rank in ranks if not facts[rank].built]
        if rebuilt:
            self._starter.build(rebuilt, cold=True)
        return rebuilt

    def surroundings(self) -> list[str]:
        """Return how full the object stores of the workers' nodes are."""
        total = {node["NodeID"]: node["Resources"] for node in ray.nodes()}  # type: ignore[no-untyped-call]  # Ray's own
        free = available_per_node()
        lines = []
        for node_id in dict.fromkeys(facts.node_id for facts in self.facts):
            size = total.get(node_id, {}).get("object_store_memory", 0.0)
            left = free.get(node_id, {}).get("object_store_memory", 0.0)
            used = f"{(size - left) / 1e6:.0f} of {size / 1e6:.0f} MB"
            lines.append(f"The object store of node {node_id[:6]} has {used} in use.")
        return lines

    def kill(self, ranks: Sequence[int]) -> None:
        """End these workers at once; Ray starts them again when the role allows it."""
        here = ray.get_runtime_context().get_node_id()
        for rank in ranks:
            facts = self.facts[rank]
            self._ask_to_end(rank, no_restart=False)
            # Ray asks the process itself to end, which one that is stopped does not.
            if facts.node_id == here:
                end_process(facts.pid, facts.birth)
            else:
                affinity = NodeAffinitySchedulingStrategy(node_id=facts.node_id, soft=False)
                remote_end = ray.remote(num_cpus=0, max_retries=0)(end_process)
                remote_end.options(scheduling_strategy=affinity).remote(facts.pid, facts.birth)

    def _ask_to_end(self, rank: int, *, no_restart: bool) -> None:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self.actors[rank], no_restart=no_restart)

    def close(self) -> None:
        """End all workers for good; those of this node have ended when it returns."""
        if not ray.is_initialized():
            return
        everyone = range(len(self.actors))
        self.control(everyone, "end", END_S)
        for rank in everyone:
            self._ask_to_end(rank, no_restart=True)
        here = ray.get_runtime_context().get_node_id()
        near = [facts for facts in self.facts if facts.node_id == here]
        # Ray prints an error for a process that is killed before it has heard that it is to end.
        deadline = time.monotonic() + END_S
        while any(lives(facts.pid, facts.birth) for facts in near) and time.monotonic() < deadline:
            time.sleep(0.005)
        for facts in near:
            end_process(facts.pid, facts.birth)


def _failed(reference: Any) -> bool:  # Any: Ray's reference of whatever prepare() returns
    try:
        ray.get(reference, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return False
    except ray.exceptions.RayError:
        return True
    return False


def _restore(
    actors: Sequence[Any],  # Any: see RayWorkers
    facts: Sequence[Facts],
    name: str,
    token: str,
) -> RayWorkers:
    return RayWorkers(actors, facts=facts, name=name, token=token)
