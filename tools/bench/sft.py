"""Tokens a second of supervised fine-tuning on one worker: our pipeline, a plain PyTorch loop, and TRL.

Run it as `python tools/bench/sft.py [--rounds 3] [--steps 6]`.

All sides train one model on the same rows in the same order, with the same micro-batches, optimizer and
clipping, and must report the same losses. They take turns in one process with one thread, so that a busy
machine slows all of them; a step lasts from the end of the one before it to its own end, whatever happens in
between, and its CPU time is what counts. The first step of each turn is not counted.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import DataArguments, StrategyArguments, TrainingArguments
from roll_pipelines.data import character_tokenizer
from roll_pipelines.sft import SFTConfig, SFTPipeline

MICRO, ACCUMULATION, RATE, NORM = 4, 4, 1e-4, 1.0
ROWS = MICRO * ACCUMULATION
ALPHABET = "abcdefghijklmnopqrstuvwxyz="

Turn = Callable[[list[str], Path], "Steps"]


class Steps:
    """When the steps of one turn ended, and their losses."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self.losses: list[float] = []

    def end(self, loss: float) -> None:
        """Notes the end of a step."""
        self.cpu.append(time.process_time())
        self.wall.append(time.perf_counter())
        self.losses.append(loss)

    def seconds(self) -> list[tuple[float, float]]:
        """Returns CPU and wall seconds of every step but the first."""
        marks = itertools.pairwise(zip(self.cpu, self.wall, strict=True))
        return [(after[0] - before[0], after[1] - before[1]) for before, after in marks]


def save_model(place: Path) -> None:
    """Writes a model of about 6 million parameters and a tokenizer of letters."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=2048,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    make = transformers.AutoModelForCausalLM.from_config
    make(config).save_pretrained(place)  # type: ignore[no-untyped-call]  # transformers
    character_tokenizer(ALPHABET).save_pretrained(place)


def texts(steps: int, *, shortest: int, longest: int) -> list[str]:
    """Returns the answers of all rows, one letter a token."""
    draws = torch.Generator().manual_seed(1)
    lengths = torch.randint(shortest, longest + 1, (steps * ROWS,), generator=draws).tolist()
    letters = torch.randint(0, 26, (steps * ROWS, longest), generator=draws).tolist()
    return ["".join(ALPHABET[n] for n in row[:length]) for row, length in zip(letters, lengths, strict=True)]


def tokens_of(answers: list[str]) -> list[list[int]]:
    """Returns rows as token ids: one letter that is given, the answer, and the end token."""
    tokenizer = character_tokenizer(ALPHABET)
    ends = int(tokenizer.eos_token_id)
    return [[*tokenizer(f"={answer}", add_special_tokens=False).input_ids, ends] for answer in answers]


def plain(answers: list[str], model_dir: Path) -> Steps:
    """A loop in plain PyTorch; each micro-batch is as wide as its longest row."""
    rows, done = tokens_of(answers), Steps()
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    for start in range(0, len(rows), ROWS):
        group = rows[start : start + ROWS]
        learnt = sum(len(row) - 1 for row in group)
        total = 0.0
        for first in range(0, ROWS, MICRO):
            part = [torch.tensor(row) for row in group[first : first + MICRO]]
            ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
            lengths = torch.tensor([len(row) for row in part])
            mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
            labels = torch.where(mask.bool(), ids, -100)[:, 1:]
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
            )
            torch.autograd.backward(loss / learnt)
            total += float(loss.detach()) / learnt
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        optimizer.zero_grad()
        done.end(total)
    return done


class TimedSFT(SFTPipeline):
    """The pipeline, with the end of each step noted."""

    done: Steps

    def end_step(self, global_step: int, metrics: Any) -> None:  # Any: as in the base
        """Ends the step, its logging included, and notes when."""
        super().end_step(global_step, metrics)
        self.done.end(metrics["sft_train/loss"])


def ours(answers: list[str], model_dir: Path, *, packing: bool = False) -> Steps:
    """The SFT pipeline on one worker in this process: rows from a file, metrics to a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        lines = (json.dumps({"prompt": "=", "response": answer}) for answer in answers)
        file.write_text("\n".join(lines), encoding="utf-8")
        role = WorkerConfig(
            strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
            training_args=TrainingArguments(
                learning_rate=RATE,
                per_device_train_batch_size=MICRO,
                gradient_accumulation_steps=ACCUMULATION,
                max_grad_norm=NORM,
            ),
            data_args=DataArguments(file_name=str(file), shuffle=False),
            use_sequence_packing=packing,
        )
        config = SFTConfig(
            sft_train=role,
            runtime="local",
            pretrain=str(model_dir),
            output_dir=folder,
            track_with=["jsonl"],
            sequence_length=512,
            save_steps=0,
        )
        with TimedSFT(config) as pipeline:
            pipeline.done = Steps()
            pipeline.run()
            return pipeline.done


def packed(answers: list[str], model_dir: Path) -> Steps:
    """The same with the rows of a micro-batch joined, so that no padding is computed."""
    return ours(answers, model_dir, packing=True)


def trl(answers: list[str], model_dir: Path) -> Steps:
    """TRL's SFTTrainer with its own defaults, but for what the other sides share."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # untyped
    import datasets  # type: ignore[import-untyped]  # ships no types

    datasets.disable_progress_bars()
    from trl.trainer.sft_config import SFTConfig as TrlConfig
    from trl.trainer.sft_trainer import SFTTrainer

    done = Steps()

    class Clock(transformers.TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any
        ) -> None:  # Any: transformers
            if "loss" in logs:
                done.end(float(logs["loss"]))

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrlConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            log_level="error",
            logging_steps=1,
            per_device_train_batch_size=MICRO,
            gradient_accumulation_steps=ACCUMULATION,
            num_train_epochs=1,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_grad_norm=NORM,
            max_length=None,
            gradient_checkpointing=False,
            train_sampling_strategy="sequential",
        )
        trainer = SFTTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(model_dir),
            args=arguments,
            train_dataset=datasets.Dataset.from_dict({"input_ids": tokens_of(answers)}),
            processing_class=character_tokenizer(ALPHABET),
            callbacks=[Clock()],
        )
        trainer.train()
    return done


def measure(sides: dict[str, Turn], answers: list[str], *, rounds: int) -> None:
    """Prints what every side reached on the same rows."""
    with tempfile.TemporaryDirectory() as folder:
        model_dir = Path(folder)
        save_model(model_dir)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        losses: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, turn in sides.items():
                done = turn(answers, model_dir)
                found[name] += done.seconds()
                losses[name] = done.losses
    tokens = sum(len(row) for row in tokens_of(answers)) / (len(answers) / ROWS)
    base = statistics.median(cpu for cpu, _ in found["plain PyTorch"])
    print(f"{'':28} {'CPU s/step':>11} {'tokens/CPU s':>13} {'tokens/s':>9} {'of plain':>9} {'loss':>8}")
    for name, steps in found.items():
        cpu, wall = (statistics.median(step[which] for step in steps) for which in (0, 1))
        line = f"{name:28} {cpu:11.3f} {tokens / cpu:13.0f} {tokens / wall:9.0f} {cpu / base:9.3f}"
        print(f"{line} {losses[name][-1]:8.4f}", flush=True)
    for name, values in losses.items():
        apart = max(abs(a - b) for a, b in zip(values, losses["plain PyTorch"], strict=True))
        assert apart < 1e-3, f"{name} has other losses than the plain loop, by {apart}"


def main() -> None:
    """Prints one table for full rows, and one for rows of different lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped
    sides: dict[str, Turn] = {"plain PyTorch": plain, "roll SFT": ours, "TRL SFTTrainer": trl}
    print(f"{ROWS} rows of 128 tokens a step, micro-batches of {MICRO}")
    measure(sides, texts(args.steps, shortest=126, longest=126), rounds=args.rounds)
    print(f"\n{ROWS} rows of 18 to 128 tokens a step, micro-batches of {MICRO}")
    sides["roll SFT, packed"] = packed
    measure(sides, texts(args.steps, shortest=16, longest=126), rounds=args.rounds)


if __name__ == "__main__":
    main()
