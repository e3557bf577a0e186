"""What importing costs."""

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    heavy = "{'torch', 'ray', 'transformers', 'hydra', 'pydantic', 'datasets', 'tensorboard'}"
    script = f"{code}; import sys; print(*sorted({heavy} & set(sys.modules)))"
    return set(subprocess.check_output([sys.executable, "-c", script], text=True).split())


def test_the_command_line_loads_nothing_heavy() -> None:
    assert loaded_by("import roll_pipelines.cli") == set()


def test_a_configuration_loads_neither_torch_nor_ray() -> None:
    assert loaded_by("import roll_pipelines.config") == set()


def test_reading_a_yaml_loads_no_torch() -> None:
    assert loaded_by("import roll_pipelines.config.load") <= {"hydra", "pydantic"}
