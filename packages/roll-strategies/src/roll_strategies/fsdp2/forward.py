"""One forward pass: rows laid out as the engine wants them, padded, trimmed, packed, or split over ranks."""

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from roll_protocol import DataProto
from roll_strategies.fsdp2.ulysses import whole_sequence
from roll_strategies.hf.forward import model_inputs, output_of
from roll_strategies.ops.layout import Layout, PackedLayout, RowLayout, packed_layout, row_layout
from roll_strategies.ops.sequence import SequenceShard

# b rows   S positions of a padded row   T positions fed   s positions of this rank


class LaidOutForward:
    """Runs the model over micro-batches and remembers how the last one was laid out.

    Args:
        model: a Hugging Face model.
        shard: how sequences are split; None when they are whole.
        packing: leave padding out by joining rows.
        trim: leave out columns that are padding in every row; a batch with `meta_info["any_layout"]` allows
            it too.
    """

    def __init__(self, model: nn.Module, *, shard: SequenceShard | None, packing: bool, trim: bool) -> None:
        self._model, self._shard = model, shard
        self._packing, self._trim = packing, trim
        self.layout: Layout | None = None
        self._around: AbstractContextManager[None] = nullcontext()

    def __call__(self, micro: DataProto) -> Tensor:
        """Returns the output: [b, S, V]; [b, s, V] when split or trimmed; [1, s, V] when packed."""
        ids, mask, positions = model_inputs(micro)
        if self._packing:
            layout: Layout = packed_layout(mask, shard=self._shard)
        else:
            trim = self._trim or bool(micro.meta_info.get("any_layout"))
            layout = row_layout(mask, trim=trim, shard=self._shard)
        cut = not isinstance(layout, RowLayout) or layout.stop - layout.start < layout.width
        plain = not cut and self._shard is None
        self.layout = None if plain else layout
        self._enter(_segments(layout, mask))
        fed_mask = None
        if self._shard is None and not self._packing:
            fed_mask = layout.local(mask)
        return self._run(
            input_ids=layout.local(ids),
            attention_mask=fed_mask,
            position_ids=layout.local(positions),
        )

    def idle(self, device: torch.device) -> Tensor:
        """Returns the output for a dummy row: takes part in collectives while other ranks have rows left."""
        width = self._shard.size if self._shard is not None else 1
        zeros = torch.zeros(1, width, dtype=torch.int64, device=device)
        layout = row_layout(torch.ones_like(zeros), trim=False, shard=self._shard)
        self._enter(zeros)
        fed = layout.local(zeros)
        mask = None if self._shard is not None else torch.ones_like(fed)
        return self._run(input_ids=fed, attention_mask=mask, position_ids=layout.local(zeros))

    def _run(self, **inputs: Tensor | None) -> Tensor:
        with warnings.catch_warnings():
            # FSDP warns of outputs that are views, for what writing to them would do; nothing here does.
            warnings.filterwarnings("ignore", message="FSDP2-wrapped module", category=UserWarning)
            return output_of(self._model(use_cache=False, **inputs))

    def _enter(self, segments: Tensor) -> None:
        """Describes the whole sequence until the next micro-batch: recomputed layers in backward ask
        again."""
        self.leave()
        if self._shard is not None:
            self._around = whole_sequence(self._shard, _padded(segments, self._shard))
            self._around.__enter__()

    def leave(self) -> None:
        """Forgets the last micro-batch."""
        self._around.__exit__(None, None, None)
        self._around = nullcontext()


def _segments(layout: Layout, mask: Tensor) -> Tensor:
    """Returns [b, T] (or [1, T] packed): the number of the row of each position, -1 for padding."""
    rows = torch.arange(len(mask), device=mask.device)[:, None].expand_as(mask)
    numbered = torch.where(mask.bool(), rows, -1)
    if isinstance(layout, PackedLayout):
        return numbered.reshape(-1).index_select(0, layout.index)[None]
    start, stop = getattr(layout, "start", 0), getattr(layout, "stop", mask.shape[1])
    return numbered[:, start:stop]


def _padded(segments: Tensor, shard: SequenceShard) -> Tensor:
    missing = shard.padded(segments.shape[1]) - segments.shape[1]
    filler = segments.new_full((len(segments), missing), -1)
    return torch.cat([segments, filler], dim=1) if missing else segments
