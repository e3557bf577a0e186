"""The report of a run: one HTML file with curves, answers, times and the configuration."""

from roll_pipelines.report.page import NoRunError, write_report

__all__ = ["NoRunError", "write_report"]
