"""The learning rate as a function of the step."""

import math

from roll_strategies.settings import TrainSettings


def rate_at(step: int, settings: TrainSettings) -> float:
    """Returns the learning rate of an optimizer step; the first step is 0.

    Example:
        >>> settings = TrainSettings(
        ...     learning_rate=1.0, lr_scheduler_type="linear", warmup_steps=2, max_steps=4
        ... )
        >>> [rate_at(step, settings) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    warmup = settings.warmup
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    if settings.lr_scheduler_type.startswith("constant"):
        return settings.learning_rate
    left = max(1, settings.max_steps - warmup)
    done = min(1.0, (step - warmup) / left)
    shape = 1.0 - done if settings.lr_scheduler_type == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    floor = settings.min_lr_ratio
    return settings.learning_rate * (floor + (1.0 - floor) * shape)
