"""Code of this machine, put where the workers of every node find it."""

import logging
import threading
from collections.abc import Mapping

from ray._private import worker

# Ray uploads the folders of a job's environment itself; for an actor's it has no public call.
from ray._private.runtime_env.py_modules import upload_py_modules_if_needed
from ray._private.runtime_env.working_dir import upload_working_dir_if_needed

logger = logging.getLogger(__name__)

_lock = threading.Lock()  # clusters are created in threads, and two of one code would write the same archive


def shipped(runtime_env: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return a runtime environment whose local folders have been uploaded to the Ray cluster.

    Ray keeps what was uploaded as long as somebody uses it, so this is asked for anew for every role; what is
    there already is not sent again.

    Args:
        runtime_env: in Ray's own words; folders in ``working_dir`` and ``py_modules`` may be local.
    """
    if not runtime_env:
        return None
    node = worker.global_worker.node
    assert node is not None, "the manager is connected before anything is shipped"
    scratch = node.get_runtime_env_dir_path()
    found = dict(runtime_env)
    with _lock:
        for upload in (upload_py_modules_if_needed, upload_working_dir_if_needed):
            found = upload(found, include_gitignore=True, scratch_dir=scratch, logger=logger)
    return found
