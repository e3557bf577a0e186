"""Checkpoints: whole directories with a manifest, found again after any crash."""

from roll_pipelines.checkpoints.store import CheckpointNotFoundError, CheckpointStore, resume_step
from roll_pipelines.checkpoints.upload import Uploader, UploadError

__all__ = ["CheckpointNotFoundError", "CheckpointStore", "UploadError", "Uploader", "resume_step"]
