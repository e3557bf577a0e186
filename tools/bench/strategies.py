"""What strategies cost: a step against a plain PyTorch loop, and the memory of log-probs.

Run it as `python tools/bench/strategies.py [--only memory] [--steps 8] [--vocab 150000] [--tokens 512]`.

Both sides of the training step take turns in one process, so that a busy machine slows both.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies import (
    BatchSettings,
    LossSum,
    ModelSettings,
    StrategyContext,
    TrainSettings,
    TrainStrategy,
    build_strategy,
    ops,
)
from roll_strategies.testing import run_ranks

ROWS, WIDTH, VOCAB = 8, 64, 2048


def model_dir(place: Path) -> Path:
    """Writes a model of about 6 million parameters."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # untyped
    model.save_pretrained(place)
    return place


def batch() -> DataProto:
    """Returns rows without padding."""
    ids = torch.randint(1, VOCAB, (ROWS, WIDTH), generator=torch.Generator().manual_seed(1))
    labels = torch.cat([ids[:, 1:], torch.full((ROWS, 1), -100)], 1)
    columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    return DataProto.from_single_dict(columns)


def plain_step(directory: Path) -> Callable[[], None]:
    """Returns one optimizer step in plain PyTorch."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = batch().batch
    assert rows is not None

    def step() -> None:
        for part in range(0, ROWS, 4):
            ids, labels = rows["input_ids"][part : part + 4], rows["labels"][part : part + 4]
            logits = model(
                input_ids=ids, attention_mask=rows["attention_mask"][part : part + 4], use_cache=False
            ).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
            )
            torch.autograd.backward(loss / (ROWS * (WIDTH - 1)))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_step(directory: Path) -> Callable[[], None]:
    """Returns one optimizer step of `fsdp2_train` with one process."""
    context = StrategyContext(
        strategy_name="fsdp2_train",
        model_args=ModelSettings(model_name_or_path=str(directory)),
        training_args=TrainSettings(learning_rate=1e-4, max_grad_norm=1.0, weight_decay=0.01),
        batching=BatchSettings(train_rows=4),
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, TrainStrategy)
    strategy.initialize()
    rows = batch()

    def loss(data: DataProto, output: Tensor) -> LossSum:
        assert data.batch is not None
        return strategy.op_compute_language_loss(output, data.batch["labels"])

    def step() -> None:
        strategy.train_step(rows, loss)

    return step


def training(steps: int) -> None:
    """Prints the best time of a step on either side."""
    with tempfile.TemporaryDirectory() as folder:
        directory = model_dir(Path(folder))
        sides = {"plain PyTorch": plain_step(directory), "fsdp2_train": our_step(directory)}
        best = dict.fromkeys(sides, float("inf"))
        for turn in range(steps + 1):
            for name, step in sides.items():
                started = time.process_time()
                step()
                if turn:  # the first turn warms up
                    best[name] = min(best[name], time.process_time() - started)
    for name, seconds in best.items():
        print(f"{name:28} {seconds * 1e3:9.1f} ms of CPU per step")
    print(f"{'ratio':28} {best['fsdp2_train'] / best['plain PyTorch']:9.3f}")


def naive(logits: Tensor, ids: Tensor, entropy: bool) -> Tensor:
    """Returns the sum of what the operations answer, by the plain formula in float32."""
    logp = torch.log_softmax(logits.float(), dim=-1)
    total = logp.gather(-1, ids[..., None]).sum()
    return total - (logp.exp() * logp).sum() if entropy else total


def ours(logits: Tensor, ids: Tensor, entropy: bool) -> Tensor:
    """Returns the same by the operations."""
    total = ops.token_log_probs(logits, ids).sum()
    return total + ops.entropy(logits, torch.ones(ids.shape)).sum() if entropy else total


def peak(
    rank: int, world_size: int, port: int, plain: bool, tokens: int, vocab: int, dtype: str, case: str
) -> float:
    """Returns by how many MiB the operation grows this process at its peak, beyond the logits."""

    def run(positions: int, width: int) -> float:
        logits = torch.empty(1, positions, width, dtype=getattr(torch, dtype)).normal_()
        logits.requires_grad_("backward" in case)
        ids = torch.randint(0, width, (1, positions))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        total = (naive if plain else ours)(logits, ids, "entropy" in case)
        if logits.requires_grad:
            torch.autograd.backward(total)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    run(2, 8)  # loads the code, which takes memory too
    return run(tokens, vocab)


CASES = (
    "log-probs, forward",
    "log-probs, forward and backward",
    "log-probs and entropy, forward and backward",
)


def memory(tokens: int, vocab: int) -> None:
    """Prints the memory of the operations and of the naive formula, both on top of the logits."""
    for dtype in ("float32", "bfloat16"):
        size = tokens * vocab * getattr(torch, dtype).itemsize / 1024**2
        print(f"logits [{tokens}, {vocab}] {dtype} are {size:.0f} MiB; so is their gradient")
        for case in CASES:
            plain, own = (run_ranks(peak, 1, way, tokens, vocab, dtype, case)[0] for way in (True, False))
            print(f"  {case:44} naive {plain:6.0f} MiB, ours {own:6.0f} MiB, {plain / max(own, 1.0):5.1f}x")


def main() -> None:
    """Prints the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=150_000)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--only", choices=("training", "memory"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.only != "memory":
        training(args.steps)
    if args.only != "training":
        memory(args.tokens, args.vocab)


if __name__ == "__main__":
    main()
