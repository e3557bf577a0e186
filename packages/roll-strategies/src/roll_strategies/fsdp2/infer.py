"""`fsdp2_infer`: a sharded model that scores."""

from typing import ClassVar

from roll_strategies.capabilities import Capabilities
from roll_strategies.fsdp2.engine import Fsdp2Strategy


class Fsdp2InferStrategy(Fsdp2Strategy):
    """Scores with a model that is sharded over all ranks of the role."""

    strategy_name: ClassVar[str] = "fsdp2_infer"
    capabilities: ClassVar[Capabilities] = Capabilities(
        dynamic_batching=True, packing=True, context_parallel=True, sleep=True
    )
