"""A user's own modules: found beside the YAML and in the current directory, by driver and workers."""

import os
import sys
from pathlib import Path


def find_modules_beside(config: Path) -> None:
    """Makes the current directory and the configuration's importable, here and in processes started later.

    Args:
        config: the YAML file.
    """
    folders = list(dict.fromkeys([str(Path.cwd()), str(config.resolve().parent)]))
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*folders, *inherited]))
