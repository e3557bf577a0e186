"""How the batches of a run travel between driver and workers."""

from collections.abc import Iterator
from pathlib import Path

from roll_executor import OBJECT_STORE, ConfigError, Transfer, transfer_backends
from roll_pipelines.config.base_config import TransferConfig
from roll_pipelines.config.problems import Problem, one_of


def transfer_problems(config: TransferConfig) -> Iterator[Problem]:
    """Yields what is wrong with the choice of a transfer backend; nothing is opened.

    Args:
        config: the section `transfer_backend`.
    """
    name, settings = config.backend_name or OBJECT_STORE, config.backend_config
    path, installed = "transfer_backend.backend_config", transfer_backends()
    if name not in installed:
        rule, where = "must name an installed transfer backend", "transfer_backend.backend_name"
        yield Problem(path=where, rule=rule, value=name, hint=one_of(installed, name))
    elif name != OBJECT_STORE:
        try:
            _ = Transfer(name, settings).backend
        except (ConfigError, ValueError, TypeError) as refused:
            yield Problem(path=path, rule=str(refused), value=settings)
    elif settings:
        rule = f"must be empty: {OBJECT_STORE} has no settings"
        yield Problem(path=path, rule=rule, value=settings, hint=f"backend_name: one of {installed[1:]}")


def open_transfer(config: TransferConfig, run_dir: Path) -> Transfer | None:
    """Returns the backend of a run, ready for calls; None for the runtime's own object store.

    Args:
        config: the section `transfer_backend`.
        run_dir: the run directory, by which a later start of the run knows what this one left behind.

    Raises:
        TransferError: the backend cannot be used here.
    """
    if config.backend_name in (None, OBJECT_STORE):
        return None
    return Transfer(str(config.backend_name), config.backend_config, run=str(run_dir)).open()
