"""Supervised fine-tuning: learn right answers, token by token."""

import copy
from collections.abc import Sequence
from typing import ClassVar

from transformers import AutoTokenizer

from roll_pipelines.base import BasePipeline
from roll_pipelines.data.messages import set_template
from roll_pipelines.data.model_source import first_weights, give_model
from roll_pipelines.data.supervised import EncodedRow, collate, in_batches
from roll_pipelines.rollouts import pad_id
from roll_pipelines.sft.config import SFTConfig, end_after_epochs
from roll_pipelines.sft.rows import encoded_data
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
        data = encoded_data(config, arguments, self.tokenizer)
        self.training, self.validation, self.order = data.training, data.validation, data.order
        self.summary |= data.count.metrics()
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

    def collated(self, rows: Sequence[EncodedRow]) -> DataProto:
        """Returns rows as one batch."""
        return collate(rows, pad_token_id=pad_id(self.tokenizer))
