"""Ray's errors in our words."""

import ray

from roll_executor.errors import Where, WorkerDiedError, WorkerError, WorkerRaisedError


def translate(error: BaseException, where: Where) -> WorkerError:
    """Return the typed error of what ``ray.get`` raised for a call on one worker."""
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        if isinstance(cause, WorkerError):
            return cause
        return WorkerRaisedError(
            f"{where} raised {type(cause).__name__}: {cause}",
            where=where,
            remote_traceback=error.traceback_str,
        )
    if isinstance(error, WorkerError):
        return error
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return WorkerDiedError(
            f"{where} was ended because its node ran out of memory; use smaller batches, fewer workers on a "
            f"node, or a bigger node. Ray says: {_short(error)}",
            where=where,
        )
    if isinstance(error, ray.exceptions.RayActorError | ray.exceptions.WorkerCrashedError):
        return WorkerDiedError(
            f"{where} has died: its process ended, was killed, or its node went away. Look at its last lines "
            f"in the log, then build the cluster again. Ray says: {_short(error)}",
            where=where,
        )
    return WorkerDiedError(f"{where} did not answer: {type(error).__name__}: {_short(error)}", where=where)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 600 else text[:600] + " ..."
