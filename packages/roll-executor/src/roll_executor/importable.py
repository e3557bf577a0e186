"""Whether another process could import a module by name."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType


def modules_to_ship(cls: type) -> list[ModuleType]:
    """Return the modules of a class and its bases that another process cannot import by name.

    A test module that pytest loads by its path is one, and so is a notebook.
    """
    found = []
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__)
        if module is not None and module.__name__ not in ("__main__", "builtins") and not _importable(module):
            found.append(module)
    return list(dict.fromkeys(found))


def _importable(module: ModuleType) -> bool:
    if module.__name__ in sys.builtin_module_names or getattr(module, "__file__", None) is None:
        return module.__spec__ is not None and module.__spec__.origin in ("built-in", "frozen")
    path: list[str] | None = None
    spec = None
    name = ""
    for part in module.__name__.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            # Editable installs bring finders of their own; trust the spec that the import system recorded.
            return _found_by_others(module)
        path = list(spec.submodule_search_locations or [])
    return spec is not None and spec.origin is not None and _same(spec.origin, module.__file__)


def _found_by_others(module: ModuleType) -> bool:
    top = module.__name__.partition(".")[0]
    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    return any(
        getattr(finder, "find_spec", None) is not None and finder.find_spec(top, None) is not None
        for finder in finders
    )


def _same(first: str, second: str | None) -> bool:
    return second is not None and Path(first).resolve() == Path(second).resolve()
