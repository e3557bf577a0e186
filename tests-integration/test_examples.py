"""Every example is a configuration that `roll check` accepts."""

from pathlib import Path

import pytest

from roll_pipelines.config.load import load_config
from roll_pipelines.rlvr import RLVRConfig

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted(example: Path) -> None:
    assert load_config(example).config.max_steps > 0


def test_the_main_job_trains_on_two_workers_with_groups_of_sixteen() -> None:
    config = load_config(EXAMPLES[0].with_name("rlvr_tiny.yaml")).config
    assert isinstance(config, RLVRConfig)
    assert (config.actor_train.world_size, config.group_size) == (2, 16)
