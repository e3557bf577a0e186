"""What a pipeline remembers between its steps and over a restart."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class WorkerState:
    """The step that was finished last, the metrics of every step, and what else must not be forgotten."""

    step: int = -1
    """The last finished step; -1 before the first."""
    log_history: list[dict[str, float]] = field(default_factory=list)
    """The reduced metrics of every finished step, each with `system/step`."""
    kv: dict[str, object] = field(default_factory=dict)
    """Values that JSON can hold, such as the position in the data or a controller's coefficient."""

    def save_to_json(self, path: Path) -> None:
        """Writes the state to a file.

        Raises:
            TypeError: `kv` holds something that JSON cannot.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load_from_json(cls, path: Path) -> "WorkerState":
        """Returns the state that `save_to_json` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
