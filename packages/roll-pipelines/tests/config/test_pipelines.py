"""Which configuration class belongs to a pipeline."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roll_pipelines.config import ConfigError
from roll_pipelines.config.load import load_config

Write = Callable[..., Path]


@pytest.mark.parametrize(
    "head",
    [
        "pipeline_cls: users_pipeline.Attributed",
        "pipeline_cls: users_pipeline.Annotated",
        "pipeline_cls: users_pipeline.Silent\nconfig_cls: users_pipeline.TwoRolesConfig",
    ],
)
def test_the_configuration_class_comes_from_attribute_annotation_or_key(write: Write, head: str) -> None:
    loaded = load_config(write(head + "\ncustom_option: 5\n"))

    assert type(loaded.config).__name__ == "TwoRolesConfig"
    assert vars(loaded.config)["custom_option"] == 5


@pytest.mark.parametrize(
    ("head", "path", "words"),
    [
        ("pipeline_cls: users_pipeline.Silent", "pipeline_cls", "config_cls"),
        ("pipeline_cls: users_pipeline.NoConfig", "pipeline_cls", "extends BaseConfig"),
        ("pipeline_cls: users_pipeline.Attribute", "pipeline_cls", "Attributed"),
        ("pipeline_cls: user_pipeline.Attributed", "pipeline_cls", "no module 'user_pipeline'"),
        ("pipeline_cls: rlrv", "pipeline_cls", "rlvr"),
        ("seed: 1", "pipeline_cls", "must name a pipeline"),
        (
            "pipeline_cls: users_pipeline.Silent\nconfig_cls: users_pipeline.Nothing",
            "config_cls",
            "must be a class",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_found_is_refused_with_the_way_out(
    write: Write, head: str, path: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(write(head + "\n"))

    assert [problem.path for problem in caught.value.problems] == [path]


def test_a_module_that_fails_to_import_for_its_own_reasons_says_so_itself(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "broken_module.py").write_text("import does_not_exist_anywhere\n")

    with pytest.raises(ModuleNotFoundError, match="does_not_exist_anywhere"):
        load_config(write("pipeline_cls: broken_module.Pipeline\n"))
