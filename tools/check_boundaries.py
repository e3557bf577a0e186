"""Fail when a package imports what it does not declare, or reaches past another package's door.

A package may import the standard library, itself, and what its `pyproject.toml` declares (its tests:
also what its dependency groups declare). Another package of this workspace is imported through its door
(`roll_protocol`) or a side door (`.testing`, `.on_ray`), and only names that a door lists in `__all__`.

Usage: python tools/check_boundaries.py [ROOT]
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layout import ROOT, LayoutError, Package, group_names, load_packages, names, read_toml, strings, table
from packaging.utils import canonicalize_name

SIDE_DOORS = ("testing", "on_ray")
OPEN_TREES = ("roll",)  # the guide's import paths: re-exports only, so every module of it is a door
SHARED_FOLDERS = ("tests-integration", "tools")
BENCHMARKS = "tools/bench"
GUIDE_PACKAGE = "my_package"  # the reader's own package in the guide's code blocks
IMPORTING_CALLS = ("import_module", "importorskip", "__import__")
DISTRIBUTION = {  # import name -> distribution, where the two differ
    "yaml": "pyyaml",
    "hydra": "hydra-core",
    "megatron": "megatron-core",
    "opentelemetry": "opentelemetry-api",
    "PIL": "pillow",
    "_pytest": "pytest",
}
MODULE_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:[A-Za-z_][\w.]*)?")


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement, or one string that names a module."""

    line: int
    module: str
    """The dotted path that is named."""
    members: tuple[str, ...] = ()
    """The names taken from it with `from module import …`."""
    quoted: bool = False
    """Whether it is a string, which is a module only if such a module exists."""


@dataclass(frozen=True, slots=True)
class Door:
    """A package's modules, and which names each of its doors lists."""

    package: Package
    modules: frozenset[str]
    """Dotted paths of all its modules."""
    listed: dict[str, frozenset[str]] = field(default_factory=dict)
    """Door or side door -> its `__all__`, where that is a plain list of strings."""

    def opens(self, module: str) -> bool:
        """Return whether other packages may import from this module."""
        top = module.split(".")[0]
        return module in (self.modules if top in OPEN_TREES else _doors_of(top))


def _doors_of(top: str) -> list[str]:
    return [top, *(f"{top}.{side}" for side in SIDE_DOORS)]


def module_path(package: Package, source: Path) -> str:
    """Return the dotted path under which a source file of a package is imported."""
    parts = source.relative_to(package.folder / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def listed_names(source: Path) -> frozenset[str] | None:
    """Return the names in a module's `__all__`, or None where that is not a plain list."""
    for node in ast.parse(source.read_text(encoding="utf-8"), str(source)).body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if node_names := [target.id for target in targets if isinstance(target, ast.Name)]:
            value = getattr(node, "value", None)
            if "__all__" in node_names and isinstance(value, ast.List | ast.Tuple):
                return frozenset(str(item.value) for item in value.elts if isinstance(item, ast.Constant))
    return None


def read_door(package: Package) -> Door:
    """Return a package's doors, read from its source without importing it.

    Raises:
        LayoutError: the package's door lists no `__all__`.
    """
    modules = {module_path(package, source): source for source in package.sources}
    doors = {door for top in package.import_names for door in _doors_of(top)}
    listed = {
        door: found
        for door in doors
        if door in modules and (found := listed_names(modules[door])) is not None
    }
    if package.door not in listed:
        raise LayoutError(
            f"{modules[package.door]}: the door lists no __all__; write it as a plain list of names"
        )
    return Door(package, frozenset(modules), listed)


def imports(source: Path) -> Iterator[Import]:
    """Yield a file's absolute imports, at any depth, and its strings that look like module paths."""
    called: set[int] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"), str(source))):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield Import(node.lineno, node.module, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
            called.add(id(node.args[0]))  # the walk meets a call before its arguments
            yield Import(node.lineno, name)
        elif isinstance(node, ast.Constant) and id(node) not in called and _is_module_path(node.value):
            module, _, member = str(node.value).partition(":")
            yield Import(node.lineno, module, (member,) if member else (), quoted=True)


def _is_module_path(value: object) -> bool:
    return isinstance(value, str) and MODULE_PATH.fullmatch(value) is not None


def _imported_by_call(node: ast.Call) -> str | None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    argument = node.args[0] if node.args else None
    if called in IMPORTING_CALLS and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return None if argument.value.startswith(".") else argument.value
    return None


def past_the_door(found: Import, door: Door) -> str | None:
    """Return what is wrong with an import of another package of this workspace, or None."""
    top = found.module.split(".")[0]
    ways = " or ".join(_doors_of(top))
    if found.quoted:
        named = next((m for m in _prefixes(found.module) if m in door.modules), top)
        if not door.opens(named):
            return f"the string {found.module!r} reaches past the door of {top}; name something of {ways}"
        return None
    if not door.opens(found.module):
        return f"import from {ways}, not from the inside {found.module!r}"
    listed = door.listed.get(found.module)
    for member in found.members:
        if listed is not None and member not in {*listed, "*", *_side_members(found.module)}:
            return f"{member!r} is not in __all__ of {found.module}; import a public name, or list it there"
    return None


def _side_members(module: str) -> tuple[str, ...]:
    return SIDE_DOORS if "." not in module else ()


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def complaints(
    files: Sequence[Path],
    *,
    owner: str,
    own: frozenset[str],
    allowed: frozenset[str],
    doors: Mapping[str, Door],
) -> Iterator[str]:
    """Yield one line for each import that the rules forbid.

    Args:
        files: the Python files to read.
        owner: the `pyproject.toml` in which a missing dependency would be declared.
        own: top-level modules that the files may import from the inside.
        allowed: distributions that the files may import.
        doors: top-level module -> the doors of the workspace package that provides it.
    """
    for source in files:
        for found in imports(source):
            top = found.module.split(".")[0]
            door = doors.get(top)
            if top in own or top in sys.stdlib_module_names or (found.quoted and door is None):
                continue
            name = door.package.name if door else canonicalize_name(DISTRIBUTION.get(top, top))
            problem = None if door is None else past_the_door(found, door)
            if name not in allowed and not found.quoted:
                yield f"{source}:{found.line}: {top!r} is undeclared; add {name!r} to {owner}, or drop it"
            elif problem:
                yield f"{source}:{found.line}: {problem}"


def local_modules(folder: Path) -> frozenset[str]:
    """Return the modules that files in a folder of tests or tools can import from beside themselves."""
    return frozenset(
        {path.stem for path in folder.rglob("*.py")} | {path.name for path in folder.rglob("*/")}
    )


def check(root: Path = ROOT) -> list[str]:
    """Return every complaint about the tree under `root`.

    Raises:
        LayoutError: the tree is not laid out as expected.
    """
    packages = load_packages(root)
    doors = {top: door for door in map(read_door, packages) for top in door.package.import_names}
    found: list[str] = []
    for package in packages:
        own, runtime = frozenset(package.import_names), package.runtime | {package.name}
        beside, testing = own | local_modules(package.folder / "tests"), runtime | package.testing
        owner = f"packages/{package.name}/pyproject.toml"
        found += complaints(package.sources, owner=owner, own=own, allowed=runtime, doors=doors)
        found += complaints(package.tests, owner=owner, own=beside, allowed=testing, doors=doors)
    return found + check_shared(root, packages, doors)


def check_shared(root: Path, packages: Sequence[Package], doors: Mapping[str, Door]) -> list[str]:
    """Return every complaint about the folders of no package, which may import what any package declares.

    The inside of a package on which no other rests is open to them, for its integration tests are there;
    benchmarks may measure the inside of any.
    """
    pyproject = read_toml(root / "pyproject.toml")
    allowed = group_names(pyproject) | names(strings(table(pyproject, "project").get("dependencies")))
    allowed |= frozenset(name for package in packages for name in package.runtime | package.testing)
    needed = frozenset(name for package in packages for name in package.runtime)
    top = {one for package in packages if package.name not in needed for one in package.import_names}
    found: list[str] = []
    for folder in (root / name for name in SHARED_FOLDERS):
        own = local_modules(folder) | local_modules(root / "tools") | top | {GUIDE_PACKAGE}
        files = sorted(folder.rglob("*.py"))
        inside = [path for path in files if path.is_relative_to(root / BENCHMARKS)]
        outside = [path for path in files if path not in inside]
        found += complaints(outside, owner="pyproject.toml", own=own, allowed=allowed, doors=doors)
        found += complaints(
            inside, owner="pyproject.toml", own=own | doors.keys(), allowed=allowed, doors=doors
        )
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the complaints and return the exit code: 0 clean, 1 complaints, 2 layout moved."""
    try:
        found = check(Path(arguments[0]) if arguments else ROOT)
    except LayoutError as error:
        print(f"check_boundaries: {error}", file=sys.stderr)
        return 2
    for line in found:
        print(line)
    print(f"check_boundaries: {len(found)} forbidden imports" if found else "check_boundaries: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
