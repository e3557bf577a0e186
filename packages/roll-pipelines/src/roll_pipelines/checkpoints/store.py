"""The checkpoints of one run: each a directory that exists whole or not at all."""

import logging
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from roll_pipelines.checkpoints.manifest import damages, step_of, write_manifest

logger = logging.getLogger(__name__)

PREFIX = "checkpoint-"
LATEST = "latest"


class CheckpointNotFoundError(ValueError):
    """A checkpoint that a run shall resume from is not there, or no whole one is."""


class CheckpointStore:
    """Writes, finds and prunes the checkpoints under one directory.

    A checkpoint is written in a staging directory, gets a manifest, and is then renamed; `latest` names the
    newest.
    """

    def __init__(self, root: Path, *, keep: int = 0) -> None:
        """Takes the directory; nothing is created before the first checkpoint.

        Args:
            root: the directory of all checkpoints of a run.
            keep: newest checkpoints to keep; 0 keeps all.
        """
        self.root, self._keep = root, keep

    def stage(self, step: int) -> Path:
        """Returns an empty directory in which the checkpoint of a step is put together."""
        staging = self.root / f".staging-{step}"
        if staging.exists():
            shutil.rmtree(staging)
        staging.mkdir(parents=True)
        return staging

    def commit(self, step: int, *, in_use: Collection[Path] = ()) -> Path:
        """Makes the staged checkpoint of a step the newest one, and removes those that are too old.

        Args:
            step: the step.
            in_use: checkpoints that somebody still reads; they stay for now.

        Returns:
            The checkpoint's final directory.
        """
        staging, final = self.root / f".staging-{step}", self.root / f"{PREFIX}{step}"
        write_manifest(staging, step=step)
        _sync(staging)
        old = self.root / f".old-{step}"
        if final.exists():
            final.rename(old)
        staging.rename(final)
        _write_pointer(self.root / LATEST, final.name)
        if old.exists():
            shutil.rmtree(old)
        self.prune(in_use=in_use)
        return final

    def find(self, wanted: bool | int | str) -> Path | None:
        """Returns the whole checkpoint that `resume_from_checkpoint` asks for; None when it is False.

        With `True` the newest whole one is taken; a damaged newer one is passed over, and said so.

        Args:
            wanted: `True`, a step number, or the path of a checkpoint or of a run directory.

        Raises:
            CheckpointNotFoundError: there is none, or the one that was named is not whole.
        """
        if wanted is False:
            return None
        if wanted is True:
            return self._newest()
        path = self.root / f"{PREFIX}{wanted}" if isinstance(wanted, int) else Path(wanted)
        if (path / "checkpoints").is_dir():
            return CheckpointStore(path / "checkpoints")._newest()
        wrong = list(damages(path)) if path.is_dir() else ["it does not exist"]
        if wrong:
            there = ", ".join(str(step) for step in self.steps()) or "none"
            raise CheckpointNotFoundError(
                f"resume_from_checkpoint {wanted!r}: {path} cannot be used ({'; '.join(wrong[:3])}); "
                f"steps with a checkpoint under {self.root}: {there}; `true` takes the newest whole one"
            )
        return path

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, whole or not, in rising order."""
        names = (
            [p.name.removeprefix(PREFIX) for p in self.root.glob(f"{PREFIX}*")] if self.root.is_dir() else []
        )
        return sorted(int(name) for name in names if name.isdigit())

    def _newest(self) -> Path:
        for step in reversed(self.steps()):
            path = self.root / f"{PREFIX}{step}"
            wrong = list(damages(path))
            if not wrong:
                return path
            logger.warning(
                "checkpoint %s is damaged (%s); the one before it is used", path, "; ".join(wrong[:3])
            )
        raise CheckpointNotFoundError(
            f"resume_from_checkpoint: no whole checkpoint under {self.root}; "
            f"set resume_from_checkpoint: false to start anew"
        )

    def prune(self, *, in_use: Collection[Path] = ()) -> None:
        """Removes what crashes left behind and the checkpoints that are too old.

        Args:
            in_use: checkpoints that somebody still reads.
        """
        for left_over in [*self.root.glob(".old-*"), *self.root.glob(".staging-*")]:
            shutil.rmtree(left_over)
        for step in self.steps()[: -self._keep] if self._keep > 0 else ():
            if (path := self.root / f"{PREFIX}{step}") not in in_use:
                shutil.rmtree(path)


def resume_step(checkpoint: Path) -> int:
    """Returns the step after which a checkpoint was taken."""
    return step_of(checkpoint)


def _write_pointer(pointer: Path, name: str) -> None:
    staged = pointer.with_suffix(".tmp")
    staged.write_text(name + "\n", encoding="utf-8")
    staged.replace(pointer)


def _sync(directory: Path) -> None:
    """Asks the file system to write a directory's files out, so that a rename never overtakes them."""
    for file in directory.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
