"""Supervised fine-tuning: learn right answers, token by token."""

import copy
from collections.abc import Sequence
from typing import ClassVar

from transformers import AutoTokenizer

from roll_pipelines.base import BasePipeline
from roll_pipelines.data.lengths import LengthCount
from roll_pipelines.data.messages import set_template
from roll_pipelines.data.model_source import first_weights, give_model
from roll_pipelines.data.order import RowOrder
from roll_pipelines.data.supervised import (
    EncodedRow,
    EncodedRows,
    SupervisedRow,
    collate,
    encode_rows,
    in_batches,
)
from roll_pipelines.rollouts import pad_id
from roll_pipelines.sft.config import SFTConfig, end_after_epochs
from roll_pipelines.sft.rows import supervised_data
from roll_pipelines.sft.schemas import SCHEMAS, TRAIN
from roll_protocol import DataProto, DataSchema, reduce_metrics


class SFTPipeline(BasePipeline):
    """One role that learns from rows, and is scored on others."""

    config_cls: ClassVar[type[SFTConfig]] = SFTConfig
    schemas: ClassVar[tuple[DataSchema, ...]] = SCHEMAS
    """The columns that each step needs and produces."""
    pipeline_config: SFTConfig

    def __init__(self, pipeline_config: SFTConfig) -> None:
        """Reads the rows, and starts the role.

        Args:
            pipeline_config: the configuration.
        """
        super().__init__(copy.deepcopy(pipeline_config))
        config = self.pipeline_config
        model = first_weights(config, self.run_directory.root)
        give_model(config.sft_train, model, instead_of=config.pretrain)
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        arguments = config.sft_train.data_args
        set_template(self.tokenizer, arguments.template)
        data = supervised_data(config, arguments)
        sources = [self.encode(rows) for rows in data.training]
        self.training = [row for source in sources for row in source.rows]
        self.summary |= sum((source.count for source in sources), LengthCount()).metrics()
        self.order = RowOrder(
            [len(source.rows) for source in sources],
            seed=config.seed,
            weights=arguments.file_weights,
            shuffle=arguments.shuffle,
        )
        self.validation = self.encode(data.validation).rows if data.validation else ()
        end_after_epochs(config, config.sft_train, rows=len(self.training))
        self.sft_train = self.start_roles({"sft_train": config.sft_train})["sft_train"]
        self.set_checkpoint_clusters(self.sft_train)

    def run(self) -> None:
        """Learns from every batch, scores the held-out rows when it is due, and writes the summary."""
        config = self.pipeline_config
        for step in self.steps():
            with self.timed("step_seconds"):
                chosen = self.order.batch(step, batch_size=config.batch_size())
                batch = self.collated([self.training[row] for row in chosen])
                batch.meta_info["global_step"] = step
                TRAIN.validate(batch)
                metrics = reduce_metrics(self.sft_train.train_step(batch).meta_info["metrics"])
            metrics["data/epoch"] = (step + 1) * config.batch_size() / len(self.training)
            self.end_step(step, metrics)
        self.summary["sft_train/loss"] = self.state.log_history[-1]["sft_train/loss"]
        self.summary |= self.validate()
        self.write_summary()

    def validate(self) -> dict[str, float]:
        """Returns loss and exact match over all rows that are held out, without learning from them."""
        if not self.validation:
            return {}
        size = self.pipeline_config.sft_train.infer_batch_size * self.sft_train.dp_size
        with self.timed("validate_seconds"):
            parts = [
                self.sft_train.val_step(self.collated(rows)) for rows in in_batches(self.validation, size)
            ]
        return reduce_metrics(DataProto.concat(parts).meta_info["metrics"])

    def encode(self, rows: Sequence[SupervisedRow]) -> EncodedRows:
        """Returns rows as token ids, none longer than `sequence_length`.

        Args:
            rows: prompts and answers.
        """
        config = self.pipeline_config
        assert config.sequence_length is not None, "a rule of the configuration demands it"
        arguments = config.sft_train.data_args
        encoded = encode_rows(
            rows,
            self.tokenizer,
            max_length=config.sequence_length,
            policy=arguments.max_length_policy,
            workers=arguments.preprocessing_num_workers,
        )
        encoded.count.warn(what="rows", max_length=config.sequence_length)
        return encoded

    def collated(self, rows: Sequence[EncodedRow]) -> DataProto:
        """Returns rows as one batch."""
        return collate(rows, pad_token_id=pad_id(self.tokenizer))
