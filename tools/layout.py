"""Where the packages of this workspace are, and what each of them declares."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


class LayoutError(ValueError):
    """The tree is not laid out as the checks expect, so they would check nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One folder under `packages/`."""

    name: str
    """The distribution's name, such as `roll-protocol`."""
    folder: Path
    """The folder that holds its `pyproject.toml`."""
    import_names: tuple[str, ...]
    """Its top-level modules; the first one is its door."""
    runtime: frozenset[str]
    """Distributions that its dependencies and its extras name."""
    testing: frozenset[str]
    """Distributions that its dependency groups name."""
    requirements: tuple[Requirement, ...]
    """Its dependencies and those of its extras, as written."""

    @property
    def door(self) -> str:
        """The module through which other packages import this one."""
        return self.import_names[0]

    @property
    def sources(self) -> list[Path]:
        """Its source files, sorted."""
        return sorted(self.folder.glob("src/**/*.py"))

    @property
    def tests(self) -> list[Path]:
        """Its test files, sorted."""
        return sorted(self.folder.glob("tests/**/*.py"))


def read_toml(path: Path) -> dict[str, object]:
    """Return the table in a TOML file.

    Raises:
        LayoutError: the file is not there.
    """
    if not path.is_file():
        raise LayoutError(f"{path} is not there; the layout has moved, so change tools/layout.py with it")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def table(parent: Mapping[str, object], *keys: str) -> dict[str, object]:
    """Return the nested table under `keys`, empty where a key is missing."""
    found: object = parent
    for key in keys:
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return dict(found) if isinstance(found, Mapping) else {}


def strings(value: object) -> list[str]:
    """Return the strings of a TOML list, leaving out tables such as `{ include-group = … }`."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def names(requirements: Iterable[str]) -> frozenset[str]:
    """Return the canonical distribution names of requirement strings."""
    return frozenset(canonicalize_name(Requirement(one).name) for one in requirements)


def group_names(pyproject: Mapping[str, object]) -> frozenset[str]:
    """Return the distributions that the dependency groups of a `pyproject.toml` name."""
    groups = table(pyproject, "dependency-groups").values()
    return names(one for group in groups for one in strings(group))


def load_package(folder: Path) -> Package:
    """Return the package in a folder, read from its `pyproject.toml`.

    Raises:
        LayoutError: the folder holds no `pyproject.toml`, or no `src/<import name>/__init__.py`.
    """
    pyproject = read_toml(folder / "pyproject.toml")
    project = table(pyproject, "project")
    extras = table(project, "optional-dependencies").values()
    wanted = [*strings(project.get("dependencies")), *(one for extra in extras for one in strings(extra))]
    name = str(project.get("name"))
    modules = table(pyproject, "tool", "uv", "build-backend").get("module-name", name.replace("-", "_"))
    import_names = (modules,) if isinstance(modules, str) else tuple(strings(modules))
    for module in import_names:
        if not (folder / "src" / module / "__init__.py").is_file():
            raise LayoutError(
                f"{folder}/src/{module}/__init__.py is not there; "
                f"every package keeps its modules in src/, named in its pyproject.toml"
            )
    return Package(
        name=canonicalize_name(name),
        folder=folder,
        import_names=import_names,
        runtime=names(wanted),
        testing=group_names(pyproject),
        requirements=tuple(Requirement(one) for one in wanted),
    )


def load_packages(root: Path = ROOT) -> list[Package]:
    """Return the packages that the workspace root names, sorted by name.

    Args:
        root: the folder of the workspace's `pyproject.toml`.

    Raises:
        LayoutError: no package is named, or the folders under `packages/` are not those that are named.
    """
    sources = table(read_toml(root / "pyproject.toml"), "tool", "uv", "sources")
    expected = {
        name for name, source in sources.items() if isinstance(source, Mapping) and source.get("workspace")
    }
    found = {path.parent.name for path in root.glob("packages/*/pyproject.toml")}
    if not expected or expected != found:
        raise LayoutError(
            f"{root}/pyproject.toml names the workspace packages {sorted(expected)}, "
            f"but packages/ holds {sorted(found)}; name each in [tool.uv.sources] and keep it in packages/"
        )
    packages = [load_package(root / "packages" / name) for name in sorted(expected)]
    for package in packages:
        if package.name != package.folder.name:
            raise LayoutError(
                f"{package.folder} declares the name {package.name!r}; folder and name must be equal"
            )
    return packages
