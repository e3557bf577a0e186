"""Mini-batches: shuffled by a seed, resumable at any position."""

import operator
from collections.abc import Iterator
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np

from roll_protocol.errors import ProtocolError, RowMismatchError
from roll_protocol.rows import Rows

Remainder = Literal["error", "keep", "drop"]
R = TypeVar("R", bound=Rows)


class BatchIterator(Generic[R]):
    """An iterator over mini-batches that knows where it stands.

    Example:
        >>> steps = batch.make_iterator(2, epochs=3, seed=0)
        >>> first = next(steps)
        >>> again = batch.make_iterator(2, epochs=3, seed=0, position=steps.position)
    """

    def __init__(
        self, data: R, size: int, epochs: int, *, seed: int | None, remainder: Remainder, position: int
    ) -> None:
        self._data, self._size, self._epochs, self._seed = data, size, epochs, seed
        rows = len(data)
        self._per_epoch = rows // size if remainder == "drop" else -(-rows // size)
        self._position = 0
        self._order: tuple[int, np.ndarray[Any, np.dtype[np.int64]]] | None = None
        self.position = position

    @property
    def position(self) -> int:
        """How many mini-batches have been handed out; write to it to go elsewhere."""
        return self._position

    @position.setter
    def position(self, value: int) -> None:
        if not 0 <= operator.index(value) <= len(self):
            raise ProtocolError(f"an iterator of {len(self)} mini-batches has no position {value}")
        self._position = value

    def __len__(self) -> int:
        """Return how many mini-batches there are in all epochs together."""
        return self._per_epoch * self._epochs

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        if self._position >= len(self):
            raise StopIteration
        epoch, step = divmod(self._position, self._per_epoch)
        start = step * self._size
        stop = min(start + self._size, self._data._rows)
        self._position += 1
        if self._seed is None:
            return self._data._cut(start, stop)
        return self._data._pick(self._permutation(epoch)[start:stop])

    def _permutation(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        if self._order is None or self._order[0] != epoch:
            # raw bits of a bit generator are stable over NumPy versions, shuffles are not
            bits = np.random.PCG64([self._seed or 0, epoch]).random_raw(self._data._rows)
            self._order = epoch, np.argsort(bits, kind="stable")
        return self._order[1]


class Iterators(Rows):
    """The mini-batches of a DataProto."""

    __slots__ = ()

    def make_iterator(
        self,
        mini_batch_size: int,
        epochs: int = 1,
        *,
        seed: int | None = None,
        remainder: Remainder = "error",
        position: int = 0,
    ) -> BatchIterator[Self]:
        """Return an iterator over mini-batches.

        Args:
            mini_batch_size: Rows in each.
            epochs: How often the rows are gone through.
            seed: None keeps the order of the rows. A number gives each epoch a permutation of its own, the
                same for the same number.
            remainder: What happens to rows that do not fill a mini-batch: ``"error"`` refuses them,
                ``"keep"`` makes a smaller last one, ``"drop"`` leaves them out of this epoch.
            position: How many mini-batches to skip, to go on where another iterator stood.

        Returns:
            Views of this batch; copies when there is a seed.

        Raises:
            RowMismatchError: The rows do not fill the mini-batches and ``remainder`` is ``"error"``.
        """
        self._sync()
        if operator.index(mini_batch_size) < 1 or operator.index(epochs) < 0:
            raise ProtocolError(f"mini-batches of {mini_batch_size} rows in {epochs} epochs cannot be made")
        if remainder not in ("error", "keep", "drop"):
            raise ProtocolError(f"remainder is 'error', 'keep' or 'drop', not {remainder!r}")
        if remainder == "error" and self._rows % mini_batch_size:
            raise RowMismatchError(
                f"{self._rows} rows do not divide into mini-batches of {mini_batch_size}; "
                "choose remainder='keep' or 'drop', or another size"
            )
        return BatchIterator(
            self._alias(), mini_batch_size, epochs, seed=seed, remainder=remainder, position=position
        )
