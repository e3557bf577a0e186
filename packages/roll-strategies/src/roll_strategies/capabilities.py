"""What an engine can do, declared once and checked against the configuration."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do; what it cannot do is refused at construction, never ignored."""

    trains: bool = False
    """Has `train_step`."""
    generates: bool = False
    """Has `generate`."""
    dynamic_batching: bool = False
    """Can bound a micro-batch by tokens instead of rows."""
    packing: bool = False
    """Can join the rows of a micro-batch into one sequence without padding."""
    context_parallel: bool = False
    """Can split a sequence over workers."""
    lora: bool = False
    """Can train or serve a low-rank adapter."""
    sleep: bool = False
    """Can give its memory back between uses (`offload_states`)."""
    abort: bool = False
    """Can stop a running generation request."""
    streaming: bool = False
    """Can hand out tokens while they are sampled."""

    def missing(self, wanted: "Capabilities") -> list[str]:
        """Returns the names of what `wanted` asks for and this engine does not have."""
        return [f.name for f in fields(self) if getattr(wanted, f.name) and not getattr(self, f.name)]
