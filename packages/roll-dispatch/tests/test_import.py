import subprocess
import sys

import roll_dispatch

DEAR = {
    "dataclasses",
    "inspect",
    "importlib.metadata",
    "asyncio",
    "argparse",
    "pickle",
    "logging",
    "ast",
    "random",
}


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement loads into a bare interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print('\\n'.join(set(sys.modules) - before))"
    return set(
        subprocess.check_output(
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path = {sys.path!r}; {code}"], text=True
        ).split()
    )


def test_importing_the_door_loads_the_standard_library_alone() -> None:
    tops = {name.split(".")[0] for name in loaded_by("import roll_dispatch")}
    assert tops - set(sys.stdlib_module_names) == {"roll_dispatch"}


def test_importing_the_door_leaves_the_dear_parts_of_the_standard_library_alone() -> None:
    assert loaded_by("import roll_dispatch") & DEAR == set()


def test_importing_the_door_leaves_command_picture_and_plugin_alone() -> None:
    inner = {"explain", "svg", "testing", "parcel", "pytest_plugin", "__main__"}
    assert loaded_by("import roll_dispatch") & {f"roll_dispatch.{name}" for name in inner} == set()


def test_the_door_lists_what_it_has() -> None:
    assert roll_dispatch.__all__ == sorted(set(roll_dispatch.__all__))
    assert [name for name in roll_dispatch.__all__ if not hasattr(roll_dispatch, name)] == []


def test_the_names_of_the_door_are_not_hidden_by_the_modules_of_the_same_name() -> None:
    code = (
        "import roll_dispatch.split, roll_dispatch.balance as b, roll_dispatch.simulate as s; from "
        "roll_dispatch import split, collect, balance, simulate; print(all(map(callable, (split, collect, "
        "balance, simulate, b, s))))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"
