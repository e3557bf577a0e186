"""The trackers by their names in `track_with`, and the package that each needs."""

PACKAGES: dict[str, str | None] = {
    "jsonl": None,
    "console": None,
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "swanlab": "swanlab",
    "mlflow": "mlflow",
    "trackio": "trackio",
}
"""None: no package beside ours. Those after `tensorboard` are extras of roll-pipelines."""
