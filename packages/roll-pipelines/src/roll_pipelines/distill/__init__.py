"""Distillation: a student learns a teacher's distribution."""

from roll_pipelines.distill.config import DistillConfig
from roll_pipelines.distill.pipeline import DistillPipeline
from roll_pipelines.distill.worker import StudentWorker, TeacherWorker

__all__ = ["DistillConfig", "DistillPipeline", "StudentWorker", "TeacherWorker"]
