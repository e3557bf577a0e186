"""What can go wrong when devices are described, planned and reserved."""


class ResourceError(Exception):
    """Root of every error that roll_resources raises."""


class DeviceMappingError(ResourceError, ValueError):
    """A device mapping is not written in the documented grammar, or names impossible devices."""


class PlanError(ResourceError, ValueError):
    """Roles do not fit on a pool; the message lists every problem that was found."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems

    def __reduce__(self) -> tuple[type["PlanError"], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.problems)


class PlatformError(ResourceError, ValueError):
    """A platform name is unknown."""


class ReservationError(ResourceError, RuntimeError):
    """A plan cannot be reserved on the running cluster."""


class ReservationTimeoutError(ReservationError, TimeoutError):
    """A reservation was not granted in time; the message says what is short and where."""


class ManagerClosedError(ReservationError):
    """A resource manager was used after it had been closed."""


class RayMissingError(ReservationError, ImportError):
    """Ray is needed and not installed."""
