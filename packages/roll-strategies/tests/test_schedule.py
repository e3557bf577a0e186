"""The learning rate of each step, worked out by hand."""

import pytest

from roll_strategies import TrainSettings, rate_at


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        (TrainSettings(learning_rate=2.0), [2.0] * 6),
        (TrainSettings(learning_rate=1.0, warmup_steps=4), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        (
            TrainSettings(learning_rate=1.0, lr_scheduler_type="linear", warmup_ratio=0.5, max_steps=4),
            [0.5, 1.0, 1.0, 0.5, 0.0, 0.0],
        ),
        (
            TrainSettings(learning_rate=1.0, lr_scheduler_type="linear", max_steps=4, min_lr_ratio=0.2),
            [1.0, 0.8, 0.6, 0.4, 0.2, 0.2],
        ),
        (
            TrainSettings(learning_rate=1.0, lr_scheduler_type="cosine", max_steps=4, min_lr_ratio=0.1),
            [1.0, 0.1 + 0.45 * (1 + 0.5**0.5), 0.55, 0.1 + 0.45 * (1 - 0.5**0.5), 0.1, 0.1],
        ),
    ],
)
def test_rates_rise_and_fall_as_the_schedule_says(settings: TrainSettings, rates: list[float]) -> None:
    assert [rate_at(step, settings) for step in range(6)] == pytest.approx(rates)
