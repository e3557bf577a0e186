"""The import contracts of the root `pyproject.toml`, each seen to pass and to fail on toy packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from layout import ROOT, read_toml, table

SETTINGS = table(read_toml(ROOT / "pyproject.toml"), "tool", "importlinter")

ALLOWED = {
    "roll_executor/__init__.py": "import roll_dispatch\nimport roll_resources\n",
    "roll_executor/on_ray/__init__.py": "import ray\n",
    "roll_executor/on_ray/actor.py": "import ray\n",
    "roll_resources/on_ray/__init__.py": "import ray\n",
    "roll_protocol/__init__.py": "import torch\nimport numpy\nimport tensordict\n",
    "roll_strategies/__init__.py": "import roll_protocol\nimport roll_dispatch\nimport torch\n",
    "roll_strategies/hf/__init__.py": "import transformers\n",
    "roll_strategies/fsdp2/__init__.py": "import transformers\n",
    "roll_strategies/megatron/model.py": "import megatron.core\nimport mbridge\n",
    "roll_strategies/vllm/__init__.py": "import vllm\n",
    "roll_strategies/sglang/__init__.py": "import sglang\n",
    "roll_pipelines/__init__.py": "import roll_executor.on_ray\nimport roll_strategies\n",
    "roll/__init__.py": "import roll_pipelines\nimport roll_executor\n",
}
FORBIDDEN = [  # the contracts that break, directly or through what is imported, and the import
    ("layers", "roll_dispatch/up.py", "import roll_executor\n"),
    ("layers", "roll_dispatch/up.py", "import roll_resources\n"),
    ("layers", "roll_protocol/up.py", "def late() -> None:\n    import roll_dispatch\n"),
    ("layers strategies", "roll_strategies/across.py", "import roll_executor\n"),
    ("layers executor", "roll_executor/across.py", "import roll_strategies\n"),
    ("layers", "roll_pipelines/up.py", "import roll\n"),
    ("executor", "roll_executor/batch.py", "import torch\n"),
    ("executor", "roll_executor/batch.py", "import roll_protocol\n"),
    ("strategies", "roll_strategies/place.py", "import roll_resources\n"),
    ("light", "roll_dispatch/array.py", "import numpy\n"),
    ("light", "roll_resources/array.py", "import torch.cuda\n"),
    ("protocol", "roll_protocol/model.py", "import transformers\n"),
    ("ray", "roll_executor/cluster.py", "import ray\n"),
    ("ray", "roll_executor/on_ray_too/actor.py", "import ray\n"),
    ("ray", "roll_strategies/hf/remote.py", "import ray.util\n"),
    ("ray", "roll_pipelines/driver.py", "import ray\n"),
    ("transformers", "roll_strategies/factory.py", "import transformers\n"),
    ("engines", "roll_strategies/hf/engine.py", "import vllm\n"),
    ("engines", "roll_strategies/vllm/engine.py", "import sglang\n"),
    ("engines", "roll_pipelines/engine.py", "import megatron.core\n"),
]


def lint(tmp_path: Path, files: dict[str, str]) -> dict[str, bool]:
    """Return, for each contract, whether a toy of the packages with these files keeps it."""
    for package in SETTINGS["root_packages"]:  # type: ignore[attr-defined]  # the check above reads a TOML list
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, *path.parents):
            if folder != tmp_path and folder.is_relative_to(tmp_path):
                (folder / "__init__.py").touch()
        path.write_text(source, encoding="utf-8")
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(program), "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    contracts = SETTINGS["contracts"]
    assert isinstance(contracts, list)
    kept = {one["id"]: f"{one['name']} KEPT" in done.stdout for one in contracts}
    broken = {one["id"]: f"{one['name']} BROKEN" in done.stdout for one in contracts}
    assert all(kept[name] != broken[name] for name in kept), done.stdout + done.stderr
    assert (done.returncode == 0) == all(kept.values()), done.stdout + done.stderr
    return kept


def test_a_tree_that_follows_the_drawing_keeps_every_contract(tmp_path: Path) -> None:
    assert all(lint(tmp_path, ALLOWED).values())


@pytest.mark.parametrize(("contracts", "path", "source"), FORBIDDEN)
def test_an_import_against_the_drawing_breaks_its_contract(
    tmp_path: Path, contracts: str, path: str, source: str
) -> None:
    kept = lint(tmp_path, {**ALLOWED, path: source})
    assert {name for name, holds in kept.items() if not holds} == set(contracts.split())


def test_every_contract_is_seen_to_fail() -> None:
    contracts = SETTINGS["contracts"]
    assert isinstance(contracts, list)
    assert {one["id"] for one in contracts} == {name for names, _, _ in FORBIDDEN for name in names.split()}
