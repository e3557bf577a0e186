"""Preference training: learn which of two answers is preferred."""

import copy
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from transformers import AutoTokenizer

from roll_pipelines.base import BasePipeline
from roll_pipelines.columns import tensor
from roll_pipelines.config import WorkerConfig
from roll_pipelines.data.lengths import LengthCount
from roll_pipelines.data.messages import set_template
from roll_pipelines.data.model_source import first_weights, give_model
from roll_pipelines.data.order import RowOrder
from roll_pipelines.data.pairs import (
    EncodedPair,
    EncodedPairs,
    PreferencePair,
    answer_rows,
    collate_pairs,
    encode_pairs,
    mismatched,
)
from roll_pipelines.dpo.config import DPOConfig
from roll_pipelines.dpo.reference import ReferenceScores
from roll_pipelines.dpo.rows import pair_data
from roll_pipelines.dpo.schemas import SCHEMAS, TRAIN
from roll_pipelines.dpo.worker import counted, pair_metrics, pair_scores
from roll_pipelines.rollouts import pad_id
from roll_pipelines.sft.config import end_after_epochs, rows_per_step
from roll_protocol import DataProto, DataSchema, Metric, reduce_metrics


class DPOPipeline(BasePipeline):
    """A policy that learns from pairs, and the reference that it is held to."""

    config_cls: ClassVar[type[DPOConfig]] = DPOConfig
    schemas: ClassVar[tuple[DataSchema, ...]] = SCHEMAS
    """The columns that each step needs and produces."""
    pipeline_config: DPOConfig

    def __init__(self, pipeline_config: DPOConfig) -> None:
        """Reads the pairs, and starts the roles.

        Args:
            pipeline_config: the configuration.
        """
        super().__init__(copy.deepcopy(pipeline_config))
        config = self.pipeline_config
        self.objective, self.options = config.objective(), config.options()
        model = first_weights(config, self.run_directory.root)
        for role in (config.actor_train, config.reference):
            give_model(role, model, instead_of=config.pretrain)
        arguments = config.actor_train.data_args
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        set_template(self.tokenizer, arguments.template)
        data = pair_data(config)
        sources = [self.encode(pairs) for pairs in data.training]
        self.training = [pair for source in sources for pair in source.pairs]
        self.validation = self.encode(data.validation).pairs if data.validation else ()
        self.summary |= sum((source.count for source in sources), LengthCount()).metrics()
        self.order = RowOrder(
            [len(source.pairs) for source in sources],
            seed=config.seed,
            weights=arguments.file_weights,
            shuffle=arguments.shuffle,
        )
        self.batch_size = rows_per_step(config.actor_train)
        end_after_epochs(config, config.actor_train, rows=len(self.training))
        self.start_policy()

    def run(self) -> None:
        """Learns from every batch, scores the held-out pairs when it is due, and writes the summary."""
        for step in self.steps():
            chosen = self.order.batch(step, batch_size=self.batch_size)
            pairs = [self.training[row] for row in chosen]
            with self.timed("reference_seconds"):
                reference = self.reference_scores.of(pairs)
            kl = self.divergence(pairs) if self.objective.needs_kl else 0.0
            self.turns.give(self.actor_train)
            with self.timed("train_seconds"):
                trained = self.actor_train.train_step(self.batch(pairs, reference, kl=kl, step=step))
            metrics = reduce_metrics(trained.meta_info["metrics"])
            metrics |= {"data/epoch": (step + 1) * self.batch_size / len(self.training), "actor_train/kl": kl}
            self.end_step(step, metrics)
        self.summary |= self.validate()
        self.write_summary()

    def validate(self) -> dict[str, float]:
        """Returns loss, accuracy and margin over all pairs that are held out, without learning from them."""
        if not self.validation:
            return {}
        with self.timed("validate_seconds"):
            policy, tokens = self.score(self.validation)
            kl = self.divergence(self.validation) if self.objective.needs_kl else 0.0
            reference = self.reference_scores.of(self.validation)
        columns = collate_pairs(self.validation, pad_token_id=0, paired=self.objective.needs_pairs)
        scores = pair_scores(policy, tokens, reference.flatten(), tensor(columns, "present").flatten(), kl=kl)
        losses = counted(self.objective.function(scores, self.options), scores, self.objective)
        mean = float(losses.double().sum()) / max(1, int(tensor(columns, "pair_mask").sum()))
        metrics = {
            "val/loss": Metric.mean(mean),
            **pair_metrics(scores, self.objective, self.options, prefix="val"),
        }
        return dict(reduce_metrics(metrics))

    def divergence(self, pairs: Sequence[EncodedPair]) -> float:
        """Returns the estimated divergence of the policy from the reference over a global batch, at least 0.

        Args:
            pairs: each prompt is scored with an answer to another one.
        """
        others = mismatched(pairs)
        policy, _ = self.score(others)
        reference = self.reference_scores.score(others)
        return max(0.0, float((policy[0::2] - reference[:, 0]).double().mean()))

    def score(self, pairs: Sequence[EncodedPair]) -> tuple[Tensor, Tensor]:
        """Returns log-probability and length of both answers of each pair, one after the other [2P]."""
        size = self.pipeline_config.actor_train.infer_batch_size * self.actor_train.dp_size
        found = []
        self.turns.give(self.actor_train)
        for start in range(0, len(pairs), size):
            part = collate_pairs(
                pairs[start : start + size], pad_token_id=pad_id(self.tokenizer), paired=True
            )
            found.append(self.actor_train.score(answer_rows(part)))
        return torch.cat([tensor(part, "log_probs") for part in found]), torch.cat(
            [tensor(part, "tokens") for part in found]
        )

    def batch(self, pairs: Sequence[EncodedPair], reference: Tensor, *, kl: float, step: int) -> DataProto:
        """Returns the batch of a step; every rank gets the same number of pairs, whole micro-batches."""
        micro = self.pipeline_config.actor_train.training_args.per_device_train_batch_size
        multiple = micro * self.actor_train.dp_size
        batch = collate_pairs(
            pairs, pad_token_id=pad_id(self.tokenizer), paired=self.objective.needs_pairs, pad_to=multiple
        )
        padded = torch.zeros(len(batch), 2)
        padded[: len(pairs)] = reference
        batch["ref_log_probs"] = padded
        batch.meta_info |= {"kl": kl, "global_step": step}
        TRAIN.validate(batch)
        return batch

    def encode(self, pairs: Sequence[PreferencePair]) -> EncodedPairs:
        """Returns pairs as token ids, under the length policy of the configuration."""
        config, arguments = self.pipeline_config, self.pipeline_config.actor_train.data_args
        assert config.sequence_length is not None, "a rule of the configuration demands it"
        encoded = encode_pairs(
            pairs,
            self.tokenizer,
            max_length=config.sequence_length,
            policy=arguments.max_length_policy,
            as_chat=arguments.template is not None,
            workers=arguments.preprocessing_num_workers,
        )
        encoded.count.warn(what="pairs", max_length=config.sequence_length)
        return encoded

    def start_policy(self) -> None:
        """Starts policy and reference; a cached reference role is closed once it has scored every pair."""
        config = self.pipeline_config
        own = self.objective.needs_reference and config.own_reference()
        clusters = self.start_roles(config.started_roles())
        self.actor_train, reference = clusters["actor_train"], clusters.get("reference")
        self.set_checkpoint_clusters(self.actor_train)
        role, scorer = ("actor_train", self.actor_train) if own else ("reference", reference)
        settings: WorkerConfig = getattr(config, role)
        self.reference_scores = ReferenceScores(
            scorer,
            pad_token_id=pad_id(self.tokenizer),
            batch_size=settings.infer_batch_size * (scorer.dp_size if scorer else 1),
            disable_adapter=own,
            turns=self.turns,
        )
        if scorer is not None and config.cache_reference:
            with self.timed("cache_reference_seconds"):
                self.reference_scores.cache(
                    [*self.training, *self.validation],
                    file=self.run_directory.root / "reference_log_probs.pt",
                    model=str(settings.model_args.model_name_or_path),
                )
            if reference is not None and not self.objective.needs_kl:
                reference.close()
