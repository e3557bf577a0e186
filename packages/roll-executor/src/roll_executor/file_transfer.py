"""The transfer backend ``files``: payloads are files in a folder that all nodes see.

For machines whose shared memory is too small for an object store, and batches that outgrow it. A file is the
payload's pickle and, beside it, the bytes of its columns; a reader maps it and reads the pages it touches.
"""

import errno
import fcntl
import logging
import mmap
import os
import pickle
import secrets
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from roll_executor.errors import ConfigError, TransferError

logger = logging.getLogger(__name__)

MIN_BYTES = 1 << 20
"""Smaller payloads travel inside the call."""
_ALIGNMENT = 64
_SETTINGS = ("folder", "min_bytes", "mapped")
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse.")
"""File systems that take a deleted file away from another node that has it open."""


class FilesBackend:
    """Writes each payload once into a folder of the run, and maps it where it is read.

    Settings: ``folder`` (a path that every node sees), ``min_bytes`` (payloads from this size on are carried;
    1 MiB), ``mapped`` (None: files are mapped unless the folder is on NFS or the like; false: read whole).
    Files are pickles: only those who may run code as you should be able to write to the folder.

    Args:
        settings: see above.
        session: names this start of the run.

    Raises:
        ConfigError: if a setting is unknown or impossible.
    """

    def __init__(self, settings: Mapping[str, object], *, session: str) -> None:
        unknown = sorted(set(settings) - set(_SETTINGS))
        if unknown:
            raise ConfigError(
                f"the files backend has no setting {unknown[0]!r}; it has {', '.join(_SETTINGS)}"
            )
        folder, min_bytes = settings.get("folder"), settings.get("min_bytes", MIN_BYTES)
        if not isinstance(folder, str) or not os.path.isabs(folder):
            raise ConfigError(
                f"folder is {folder!r}; give the absolute path of a folder that every node sees"
            )
        if not isinstance(min_bytes, int) or isinstance(min_bytes, bool) or min_bytes < 0:
            raise ConfigError(f"min_bytes is {min_bytes!r}; give a number of bytes, such as {MIN_BYTES}")
        mapped = settings.get("mapped")
        if not isinstance(mapped, bool | None):
            raise ConfigError(f"mapped is {mapped!r}; give true or false, or leave it out")
        self.min_bytes = min_bytes
        self.base = Path(folder)
        self.folder = self.base / f"roll-{session}"
        """Where the files of this run are."""
        self._mapped = mapped
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        """Make the run's folder, and clear what an earlier start of the same run left when it was killed."""
        try:
            self.base.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self._lock_of(self.folder))
            self.folder.mkdir(mode=0o700)
        except (OSError, ValueError) as error:
            self._unlock()
            raise TransferError(
                f"transfer backend 'files' cannot use {self.base} on {socket.gethostname()}: {error}; name a "
                "folder that you may write to (transfer_backend.backend_config.folder)"
            ) from error
        run = self.folder.name.rpartition("-")[0]
        for left in sorted(self.base.glob(f"{run}-*/")):
            if left != self.folder:
                self._clear(left)

    def put(self, value: object, *, call: str) -> object:
        """Write a payload and return its file's name, or the value when it is small or cannot be pickled."""
        size = getattr(value, "nbytes", None)
        if not isinstance(size, int) or size < self.min_bytes:
            return value
        buffers: list[pickle.PickleBuffer] = []
        try:
            text = _dumps(value, buffers.append)
        except (pickle.PicklingError, AttributeError, TypeError):
            return value  # the runtime has a word for it, or a way
        name = f"{call}-{secrets.token_hex(8)}"
        views = [memoryview(text), *(buffer.raw() for buffer in buffers)]
        try:
            self._write(self.folder / name, views)
        finally:  # in the traceback of an error, views of views would bring the garbage collector down
            for view in views:
                view.release()
            for buffer in buffers:
                buffer.release()
        return name

    def get(self, reference: object) -> Any:  # Any: whatever was put
        """Return the payload of a file, over the file's own pages, which nobody can write to."""
        path = self.folder / str(reference)
        try:
            with path.open("rb") as file:
                text, *buffers = _blocks(self._read(file))
        except OSError as error:
            raise self._refusal("read", path, error) from error
        except (ValueError, struct.error) as error:
            raise TransferError(
                f"transfer backend 'files' cannot read {path} on node {socket.gethostname()}: it is not "
                f"whole ({error}). Somebody else wrote to it, or this node sees the folder late: use "
                "another one (transfer_backend.backend_config.folder)"
            ) from error
        return pickle.loads(text, buffers=buffers)

    def delete(self, call: str) -> None:
        """Remove the files of a call; whoever has one mapped keeps it."""
        for path in self.folder.glob(f"{call}-*"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the run's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            logger.warning("transfer backend 'files' cannot remove %s; remove it by hand", self.folder)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is None:
            return
        path, lock, self._lock = self._lock_of(self.folder), self._lock, None
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("transfer backend 'files' cannot remove %s: %s; remove it by hand", path, error)
        lock.close()

    def _write(self, path: Path, blocks: list[memoryview]) -> None:
        sizes = [len(block) for block in blocks]
        try:
            with path.open("xb") as file:
                file.write(struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes))
                for block in blocks:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    file.write(block)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise self._refusal("write", path, error, sum(sizes)) from error

    def _read(self, file: IO[bytes]) -> memoryview:
        if self._mapped is None:
            self._mapped = not _is_remote(self.folder.resolve())
        if not self._mapped:
            return memoryview(file.read())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def _refusal(self, what: str, path: Path, error: OSError, size: int = 0) -> TransferError:
        node = socket.gethostname()
        begin = f"transfer backend 'files' cannot {what} {path} on node {node}"
        if not self.folder.is_dir():
            return TransferError(
                f"{begin}: the run's folder is not there. Unless the backend was closed or the folder "
                "removed, this node sees another one. Every node must see the same folder: set "
                "transfer_backend.backend_config.folder to one on a shared file system, or use object_store"
            )
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free = shutil.disk_usage(self.folder).free
            return TransferError(
                f"{begin}: {size / 1e6:.0f} MB do not fit, {free / 1e6:.0f} MB are free. Free some, send "
                "smaller batches, or set transfer_backend.backend_config.folder to a larger file system"
            )
        if isinstance(error, FileNotFoundError):
            return TransferError(f"{begin}: it is gone, for the call that it belongs to has ended")
        return TransferError(f"{begin}: {error}")

    @staticmethod
    def _lock_of(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}.lock")

    def _clear(self, left: Path) -> None:
        """Remove the folder of a driver that is no more; the kernel has let go of its lock."""
        try:
            lock = _locked(self._lock_of(left))
        except OSError as error:
            logger.warning("%s is of this run, and in use or not ours to remove: %s", left, error)
            return
        shutil.rmtree(left, ignore_errors=True)
        self._lock_of(left).unlink(missing_ok=True)
        lock.close()
        logger.warning("removed %s, which an earlier start of this run had left", left)


def _locked(path: Path) -> IO[bytes]:
    """Return the file, held until it is closed or this process ends."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _dumps(value: object, callback: Callable[[pickle.PickleBuffer], Any]) -> bytes:
    if "ray" not in sys.modules:
        return pickle.dumps(value, protocol=5, buffer_callback=callback)
    from roll_executor.on_ray import dumps  # takes what the workers cannot import, as calls themselves do

    return dumps(value, callback)


def _blocks(data: memoryview) -> list[memoryview]:
    (count,) = struct.unpack_from("<Q", data)
    at, found = 8 * (count + 1), []
    for size in struct.unpack_from(f"<{count}Q", data, 8):
        at += -at % _ALIGNMENT
        if at + size > len(data):
            raise ValueError(f"{len(data)} bytes, and more than {at + size} belong to it")
        found.append(data[at : at + size])
        at += size
    return found


def _is_remote(folder: Path) -> bool:
    """Return whether a folder is on a file system such as NFS."""
    mounts = Path("/proc/self/mountinfo")  # Linux has it
    kind, longest = "", -1
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= longest:
            kind, longest = after.split()[0], len(point)
    return kind.startswith(_REMOTE)
