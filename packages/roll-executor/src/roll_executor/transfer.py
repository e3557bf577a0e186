"""How the payloads of calls travel: by the runtime's object store, or by a backend that the user names.

A backend carries the arguments of every call, and the results of calls that wait for them. What a call hands
out as references of the runtime (``blocking=False``, the items of a stream) stays in the object store, which
alone knows who still holds one.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import TracebackType
from typing import Any, Protocol

from roll_executor.errors import ConfigError, TransferError

logger = logging.getLogger(__name__)

GROUP = "roll.transfer_backends"
OBJECT_STORE = "object_store"
"""The name that means: no backend, the runtime's own object store."""


class TransferBackend(Protocol):
    """Carries payloads between processes.

    An entry point of the group ``roll.transfer_backends`` names a factory, ``make(settings, session=...)``.
    It checks the settings (``ValueError``) and opens nothing: every process of the run has a backend of its
    own, made from the same settings and session.
    """

    def open(self) -> None:
        """Make ready what the whole run shares; called once, by the driver, before any call."""
        ...

    def put(self, value: object, *, call: str) -> object:
        """Store a payload of a call and return a small reference that pickles; or return the value itself,
        which then travels inside the call.

        Args:
            value: an argument or a result.
            call: the call that it belongs to.
        """
        ...

    def get(self, reference: object) -> Any:  # Any: whatever was put
        """Return the payload; its receiver may write to it, and nobody else may see that."""
        ...

    def delete(self, call: str) -> None:
        """Forget all payloads of a call, which has ended; there may be none."""
        ...

    def close(self) -> None:
        """Forget everything of this run; called by the driver at its end."""
        ...


Factory = Callable[..., TransferBackend]
"""``make(settings: Mapping[str, object], *, session: str)``."""


class Transfer:
    """A backend by its name and settings. The driver opens it; what is pickled into other processes carries
    the same payloads.

    Args:
        name: an installed backend, see ``transfer_backends``.
        settings: its own settings.
        run: names the run over restarts, for instance its folder; what a killed driver left is known by it.
            Without a name nothing is.

    Example:
        >>> with Transfer("files", {"folder": "/tmp"}) as transfer:  # doctest: +SKIP
        ...     Cluster("doubler", Doubler, manager, WorkerConfig(world_size=2), transfer=transfer)
    """

    def __init__(self, name: str, settings: Mapping[str, object] | None = None, *, run: str = "") -> None:
        self.name = name
        self.settings = dict(settings or {})
        known = hashlib.sha256(run.encode()).hexdigest()[:8] if run else secrets.token_hex(4)
        self.session = f"{known}-{secrets.token_hex(6)}"
        """``<run>-<random>``: the part before the dash is the same for every start of one named run."""
        self._backend: TransferBackend | None = None

    @property
    def backend(self) -> TransferBackend:
        """This process's own backend, made when it is first asked for.

        Raises:
            ConfigError: if none of this name is installed here, or a setting is impossible.
        """
        if self._backend is None:
            self._backend = _factory(self.name)(self.settings, session=self.session)
        return self._backend

    @property
    def is_open(self) -> bool:
        """Whether calls may use it: opened and not closed, or received from where it was."""
        return self.session in _OPEN

    def open(self) -> "Transfer":
        """Make the backend ready for calls; done by the driver.

        Raises:
            ConfigError: see ``backend``.
            TransferError: if it cannot be used on this node.
        """
        self.backend.open()
        _OPEN[self.session] = self
        return self

    def close(self) -> None:
        """Forget all payloads of the run; twice does nothing."""
        if _OPEN.pop(self.session, None) is not None:
            self.backend.close()

    def __enter__(self) -> "Transfer":
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        return _arrived, (self.name, self.settings, self.session)


_OPEN: dict[str, Transfer] = {}
"""By session: what this process has opened or received."""


def _arrived(name: str, settings: Mapping[str, object], session: str) -> Transfer:
    if session not in _OPEN:
        transfer = Transfer(name, settings)
        transfer.session = session
        return _OPEN.setdefault(session, transfer)
    return _OPEN[session]


def transfer_backends() -> list[str]:
    """Return the names of the backends that are installed, the object store first."""
    return [OBJECT_STORE, *sorted({point.name for point in entry_points(group=GROUP)})]


def _factory(name: str) -> Factory:
    for point in entry_points(group=GROUP, name=name):
        try:
            make: Factory = point.load()
        except ImportError as missing:
            raise ConfigError(
                f"transfer backend {name!r} cannot be loaded: {missing}; install what it needs on every node"
            ) from missing
        return make
    raise ConfigError(
        f"no transfer backend {name!r} is installed; there are {', '.join(transfer_backends())}. A package "
        f"adds one with an entry point of the group {GROUP!r}"
    )


@dataclass(frozen=True, slots=True)
class Carried:
    """Stands in a message for a payload that a backend carries."""

    reference: object


class Carriage:
    """What one call carries by a backend; it goes to the workers in the call's header.

    Args:
        transfer: the backend.
        call: the call.
        results: whether a worker hands its result to the backend, too.
    """

    def __init__(self, transfer: Transfer, *, call: str | None = None, results: bool = True) -> None:
        self.transfer = transfer
        self.call = call or secrets.token_hex(8)
        self.results = results
        self._used = False

    def one_way(self) -> "Carriage":
        """Return the carriage for ranks whose results stay with the runtime."""
        return Carriage(self.transfer, call=self.call, results=False)

    def load(self, value: object) -> object:
        """Return what travels in a value's place."""
        with self._naming("store a payload"):
            reference = self.transfer.backend.put(value, call=self.call)
        if reference is value:
            return value
        self._used = True
        return Carried(reference)

    def unload(self, value: object) -> Any:  # Any: whatever was loaded
        """Return the value that ``load`` was given."""
        if not isinstance(value, Carried):
            return value
        self._used = True
        with self._naming("fetch a payload"):
            return self.transfer.backend.get(value.reference)

    def end(self, *, failed: bool = False) -> None:
        """Let the backend forget the call's payloads; after a failure there may be some nobody told of."""
        if not self._used and not failed:
            return
        try:
            with self._naming("forget the payloads of a call"):
                self.transfer.backend.delete(self.call)
        except TransferError as error:  # the result is there, and close() will try again
            logger.warning("%s", error)

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except (TransferError, ConfigError):
            raise
        except Exception as error:
            raise TransferError(
                f"transfer backend {self.transfer.name!r} cannot {what}: {type(error).__name__}: {error}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        return _carriage, (self.transfer, self.call, self.results)


def _carriage(transfer: Transfer, call: str, results: bool) -> Carriage:
    return Carriage(transfer, call=call, results=results)
