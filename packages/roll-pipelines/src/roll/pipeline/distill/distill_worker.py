"""The workers of the distillation pipeline."""

from roll_pipelines.distill import StudentWorker, TeacherWorker

__all__ = ["StudentWorker", "TeacherWorker"]
