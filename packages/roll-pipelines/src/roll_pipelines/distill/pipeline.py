"""Distillation: a student learns a teacher's distribution over the next token."""

import copy
from collections.abc import Sequence
from typing import ClassVar

from transformers import AutoTokenizer

from roll_pipelines.base import BasePipeline
from roll_pipelines.data.messages import set_template
from roll_pipelines.data.model_source import first_weights, give_model
from roll_pipelines.data.supervised import EncodedRow, collate, in_batches
from roll_pipelines.distill.config import DistillConfig
from roll_pipelines.distill.schemas import SCHEMAS, STUDENT
from roll_pipelines.distill.teacher import shared_vocabulary, teacher_weights
from roll_pipelines.rollouts import pad_id
from roll_pipelines.sft.config import end_after_epochs, rows_per_step
from roll_pipelines.sft.rows import encoded_data
from roll_protocol import DataProto, DataSchema, reduce_metrics


class DistillPipeline(BasePipeline):
    """A teacher that shows its distribution over every answer token, and a student that learns it."""

    config_cls: ClassVar[type[DistillConfig]] = DistillConfig
    schemas: ClassVar[tuple[DataSchema, ...]] = SCHEMAS
    """The columns that each step needs and produces."""
    pipeline_config: DistillConfig

    def __init__(self, pipeline_config: DistillConfig) -> None:
        """Reads the rows, teaches a tiny teacher if there is one, and starts the roles.

        Args:
            pipeline_config: the configuration.
        """
        super().__init__(copy.deepcopy(pipeline_config))
        config = self.pipeline_config
        model = first_weights(config, self.run_directory.root)
        give_model(config.student, model, instead_of=config.pretrain)
        arguments = config.student.data_args
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        set_template(self.tokenizer, arguments.template)
        data = encoded_data(config, arguments, self.tokenizer)
        self.training, self.validation, self.order = data.training, data.validation, data.order
        self.summary |= data.count.metrics()
        self.batch_size = rows_per_step(config.student)
        end_after_epochs(config, config.student, rows=len(self.training))
        taught = teacher_weights(config, self.run_directory.root, start=self.start_roles)
        config.teacher.model_args.model_name_or_path = taught
        self.vocabulary = shared_vocabulary(student=model, teacher=taught)
        clusters = self.start_roles({"student": config.student, "teacher": config.teacher})
        self.student, self.teacher = clusters["student"], clusters["teacher"]
        self.set_checkpoint_clusters(self.student)

    def run(self) -> None:
        """Learns from the teacher on every batch, scores the held-out rows when due, writes the summary."""
        for step in self.steps():
            rows = [self.training[row] for row in self.order.batch(step, batch_size=self.batch_size)]
            with self.timed("teacher_seconds"):
                batch = self.taught(rows)
            self.turns.give(self.student)
            with self.timed("student_seconds"):
                trained = self.student.train_step(batch)
            metrics = reduce_metrics(trained.meta_info["metrics"])
            metrics["data/epoch"] = (step + 1) * self.batch_size / len(self.training)
            self.end_step(step, metrics)
        self.summary |= self.validate(teacher=True)
        self.write_summary()

    def taught(self, rows: Sequence[EncodedRow]) -> DataProto:
        """Returns rows as one batch with the teacher's distribution over every token of theirs."""
        batch = collate(rows, pad_token_id=pad_id(self.tokenizer))
        batch.meta_info["vocabulary"] = self.vocabulary
        self.turns.give(self.teacher)
        taught = batch.union(self.teacher.forward(batch))
        STUDENT.validate(taught)
        return taught

    def validate(self, *, teacher: bool = False) -> dict[str, float]:
        """Returns loss, exact match and divergence over all held-out rows, without learning from them.

        Args:
            teacher: score the teacher as well, whose numbers do not change.
        """
        if not self.validation:
            return {}
        config, reports = self.pipeline_config, []
        size = config.student.infer_batch_size * self.student.dp_size
        with self.timed("validate_seconds"):
            for rows in in_batches(self.validation, size):
                batch = self.taught(rows)
                self.turns.give(self.student)
                reports += [self.student.val_step(batch), self.student.divergence(batch)]
                if teacher:
                    self.turns.give(self.teacher)
                    reports.append(self.teacher.val_step(batch))
        return dict(reduce_metrics(DataProto.concat(reports).meta_info["metrics"]))
