"""Copies finished checkpoints to another file system."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import fsspec  # type: ignore[import-untyped]  # fsspec ships no types


class UploadError(RuntimeError):
    """A checkpoint could not be copied to where the configuration asks for it."""


class Uploader:
    """Copies checkpoints to a directory or URL, one at a time, beside the run."""

    def __init__(self, target: str, *, in_background: bool = True) -> None:
        """Takes where to copy to.

        Args:
            target: a directory or any fsspec URL, such as `s3://bucket/run`.
            in_background: copy while training goes on; the error of a copy is raised by the next call.
        """
        self._target, self._in_background = target.rstrip("/"), in_background
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint-upload")
        self._running: dict[Future[None], Path] = {}

    def in_use(self) -> list[Path]:
        """Returns the checkpoints that are being copied or wait for it."""
        return [checkpoint for future, checkpoint in self._running.items() if not future.done()]

    def upload(self, checkpoint: Path) -> None:
        """Starts to copy one checkpoint, or copies it when not in the background.

        Raises:
            UploadError: this copy, or an earlier one in the background, failed.
        """
        self._collect(wait=False)
        self._running[self._pool.submit(_copy, checkpoint, self._target)] = checkpoint
        self._collect(wait=not self._in_background)

    def close(self) -> None:
        """Waits for all copies.

        Raises:
            UploadError: one of them failed.
        """
        try:
            self._collect(wait=True)
        finally:
            self._pool.shutdown()

    def _collect(self, *, wait: bool) -> None:
        done = [future for future in self._running if wait or future.done()]
        for future in done:
            del self._running[future]
        for future in done:
            future.result()


def _copy(checkpoint: Path, target: str) -> None:
    try:
        filesystem, root = fsspec.core.url_to_fs(target)
        staged, final = f"{root}/.{checkpoint.name}.part", f"{root}/{checkpoint.name}"
        filesystem.makedirs(root, exist_ok=True)
        for old in (staged, final):
            if filesystem.exists(old):
                filesystem.rm(old, recursive=True)
        filesystem.put(str(checkpoint), staged, recursive=True)
        filesystem.mv(staged, final, recursive=True)
    except (OSError, ValueError, ImportError) as failed:
        raise UploadError(f"checkpoint {checkpoint} was not copied to {target}: {failed}") from failed
