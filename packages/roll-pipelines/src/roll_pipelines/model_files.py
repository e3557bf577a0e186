"""The files of models: on every node before the workers there open them, fetched once per node."""

import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from roll_resources import ResourceManager

logger = logging.getLogger(__name__)

USELESS = ("*.onnx", "*.gguf", "*.h5", "*.msgpack", "*.tflite", "original/*")
"""Files of a hub repository that no engine of ours opens."""


class ModelFilesError(RuntimeError):
    """The files of a model are missing on a node, or cannot be fetched there."""


Fetched = tuple[str, str]
"""The node, and what went wrong there; empty when nothing did."""


def fetch_model(name: str) -> Fetched:
    """Sees to it that this machine has a model's files: a directory is looked for, a hub name is downloaded.

    Args:
        name: a directory, or a name on the Hugging Face hub.
    """
    node = socket.gethostname()
    if Path(name).is_dir():
        return node, ""
    if name.startswith(("/", ".", "~")):
        return node, "there is no such directory; put it on a file system that every node sees"
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(name, ignore_patterns=list(USELESS))
    except (OSError, ValueError) as failed:
        told = " ".join(str(failed).split())
        return node, f"it is no directory and cannot be fetched from the hub: {type(failed).__name__}: {told}"
    return node, ""


def prepare_models(
    manager: ResourceManager, names: Iterable[str | None], *, fetch: Callable[[str], Fetched] = fetch_model
) -> None:
    """Fetches each model once on every node of a run, all nodes at the same time.

    A directory that a run on one node names is not looked for twice: it is there.

    Args:
        manager: the nodes.
        names: directories and hub names; those that are None or stand there twice count once or not at all.
        fetch: what is run on each node, once for each name.

    Raises:
        ModelFilesError: a node lacks a model, with what each such node says.
    """
    wanted = [name for name in dict.fromkeys(names) if name]
    if len(manager.pool.nodes) == 1:
        wanted = [name for name in wanted if not Path(name).is_dir()]
    for name in wanted:
        logger.info("looking for model %s on every node", name)
        found = manager.run_on_nodes(fetch, name)
        broken = [f"node {node}: {problem}" for node, problem in _answers(found) if problem]
        if broken:
            told = "; ".join(broken)
            raise ModelFilesError(
                f"model {name!r} is missing on {len(broken)} of {len(found)} node(s): {told}"
            )


def _answers(found: list[object]) -> list[Fetched]:
    return [answer for answer in found if isinstance(answer, tuple)]
