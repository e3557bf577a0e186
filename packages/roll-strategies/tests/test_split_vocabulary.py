"""Operations on logits whose vocabulary, and whose sequence, is split over ranks."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from roll_strategies.ops import (
    Layout,
    SequenceShard,
    VocabularyShard,
    divergence,
    entropy,
    gather_by_teacher_indices,
    language_loss,
    log_probs,
    packed_layout,
    row_layout,
    topk_logits,
    topk_probs_and_indices,
)
from roll_strategies.testing import run_ranks

ROWS, WIDTH, VOCAB, PIECE = 3, 7, 11, 6
"""The last rank has 5 real ids and one of filler."""

MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]])
IDS = torch.randint(0, VOCAB, (ROWS, WIDTH), generator=torch.Generator().manual_seed(1))
LABELS = torch.where(MASK.bool() & MASK.roll(-1, 1).bool(), IDS.roll(-1, 1), -100)
LABELS[:, -1] = -100
TEACHER = torch.randn(ROWS, WIDTH, VOCAB, generator=torch.Generator().manual_seed(7), dtype=torch.float64)

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}

Operation = Callable[[Tensor, Layout | None, VocabularyShard | None], Tensor]


def some_logits(dtype: torch.dtype) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, WIDTH, VOCAB, generator=draws, dtype=torch.float64) * 3
    logits[0, 1, 4] = float("-inf")
    return logits.to(dtype)


def best(logits: Tensor, layout: Layout | None, vocabulary: VocabularyShard | None, count: int) -> Tensor:
    kept = topk_logits(logits, count, layout=layout, vocabulary=vocabulary)
    weights = 1.0 if kept.indices is None else (1 + kept.indices).to(logits.dtype)
    return torch.where(kept.values.isfinite(), kept.values, 0.0) * weights


def against_teacher(
    logits: Tensor, layout: Layout | None, vocabulary: VocabularyShard | None, topk: int
) -> Tensor:
    _, logp, ids = topk_probs_and_indices(TEACHER, topk, temperature=2.0, target_vocab_size=9)
    finite = torch.where(logits.isfinite(), logits, -9.0)
    narrowed = vocabulary.narrowed(9) if vocabulary is not None else None
    student = finite if vocabulary is not None else finite[..., :9]
    return divergence(student, logp, teacher_indices=ids, layout=layout, vocabulary=narrowed)


OPERATIONS: dict[str, Operation] = {
    "log-probs": lambda z, lay, voc: log_probs(z, IDS, MASK, temperature=0.7, layout=lay, vocabulary=voc),
    "entropy": lambda z, lay, voc: entropy(z, MASK, temperature=0.7, layout=lay, vocabulary=voc),
    "language loss": lambda z, lay, voc: language_loss(z, LABELS, layout=lay, vocabulary=voc).value[None],
    "logits at ids": lambda z, lay, voc: torch.where(
        (picked := gather_by_teacher_indices(z, IDS[..., None], layout=lay, vocabulary=voc)).isfinite(),
        picked,
        0.0,
    ),
    "top 1": lambda z, lay, voc: best(z, lay, voc, 1),
    "top 8": lambda z, lay, voc: best(z, lay, voc, 8),
    "all": lambda z, lay, voc: best(z, lay, voc, 0),
    "divergence on 5 ids": lambda z, lay, voc: against_teacher(z, lay, voc, 5),
    "divergence on all ids": lambda z, lay, voc: against_teacher(z, lay, voc, 0),
}


def weighted(values: Tensor) -> Tensor:
    """Returns one number in which each value counts differently."""
    draws = torch.Generator().manual_seed(2)
    return (values * torch.randn(values.shape, generator=draws, dtype=torch.float64).to(values.dtype)).sum()


def layouts(shard: SequenceShard | None) -> dict[str, Layout | None]:
    return {
        "rows": row_layout(MASK, trim=False, shard=shard) if shard is not None else None,
        "packed": packed_layout(MASK, shard=shard),
    }


def on_every_rank(
    rank: int, world_size: int, port: int, pieces: int
) -> dict[torch.dtype, dict[str, tuple[Tensor, Tensor]]]:
    """Returns value and gradient of each operation; ranks beside each other share positions, `pieces` of
    which make a sequence."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    tensor_size = world_size // pieces
    for start in range(0, world_size, tensor_size):
        group = dist.new_group(list(range(start, start + tensor_size)))
        if start <= rank < start + tensor_size:
            mine = group
    place = rank % tensor_size
    vocabulary = VocabularyShard(group=mine, rank=place, size=tensor_size, width=PIECE, vocab_size=VOCAB)
    shard = None
    for first in range(tensor_size):
        line = dist.new_group(list(range(first, world_size, tensor_size)))
        if pieces > 1 and place == first:
            shard = SequenceShard(group=line, rank=rank // tensor_size, size=pieces)
    return {dtype: computed(dtype, place, tensor_size, shard, vocabulary) for dtype in TOLERANCE}


def computed(
    dtype: torch.dtype, place: int, tensor_size: int, shard: SequenceShard | None, vocabulary: VocabularyShard
) -> dict[str, tuple[Tensor, Tensor]]:
    found = {}
    filler = torch.full((ROWS, WIDTH, tensor_size * PIECE - VOCAB), 50.0, dtype=dtype)
    for kind, layout in layouts(shard).items():
        for name, operation in OPERATIONS.items():
            whole = torch.cat([some_logits(dtype), filler], -1).requires_grad_()
            fed = whole if layout is None else layout.local(whole)
            value = operation(fed[..., place * PIECE : (place + 1) * PIECE], layout, vocabulary)
            torch.autograd.backward(weighted(value))
            assert whole.grad is not None
            # Each rank has the gradient of its own ids and positions; the rest is 0.
            dist.all_reduce(whole.grad)
            found[f"{kind}: {name}"] = value.detach(), whole.grad
    return found


@pytest.mark.parametrize(("world_size", "pieces"), [(2, 1), (4, 2)])
def test_split_vocabulary_and_sequence_change_no_value_and_no_gradient(world_size: int, pieces: int) -> None:
    everywhere = run_ranks(on_every_rank, world_size, pieces)
    for dtype, tolerance in TOLERANCE.items():
        for kind, layout in layouts(None).items():
            for name, operation in OPERATIONS.items():
                # Float32 has 24 bits: the plain value is computed in float64, of the same float32 logits.
                logits = some_logits(dtype).double().requires_grad_()
                expected = operation(logits if layout is None else layout.local(logits), layout, None)
                torch.autograd.backward(weighted(expected))
                assert logits.grad is not None
                for value, grad in (found[dtype][f"{kind}: {name}"] for found in everywhere):
                    message = f"{kind}: {name} in {dtype}"
                    close(value, expected.detach(), tolerance, message)
                    close(grad[..., :VOCAB], logits.grad, tolerance, message)
                    assert not grad[..., VOCAB:].any(), f"{message}: filler has a gradient"


def close(found: Tensor, expected: Tensor, tolerance: float, message: str) -> None:
    torch.testing.assert_close(
        found.double(), expected, atol=tolerance, rtol=tolerance, msg=lambda text: f"{message}: {text}"
    )


def gathered_by_mistake(rank: int, world_size: int, port: int) -> str:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    assert dist.group.WORLD is not None
    shard = VocabularyShard(group=dist.group.WORLD, rank=rank, size=1, width=PIECE, vocab_size=VOCAB)
    with pytest.raises(ValueError, match="must have 6 ids on each, got 11; pass this rank's piece") as caught:
        log_probs(some_logits(torch.float32), IDS, MASK, vocabulary=shard)
    return str(caught.value)


def test_gathered_logits_are_refused_where_a_piece_is_expected() -> None:
    [message] = run_ranks(gathered_by_mistake, 1)
    assert "split over 1 ranks" in message
