"""Trackers: where each step's metrics go."""

from roll_pipelines.tracking.jsonl import JsonlTracker, read_metrics
from roll_pipelines.tracking.several import SeveralTrackers, as_number, create_tracker
from roll_pipelines.tracking.tracker import Tracker

__all__ = ["JsonlTracker", "SeveralTrackers", "Tracker", "as_number", "create_tracker", "read_metrics"]
