"""The ranks of a sharded model as the source of weight updates."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from roll_strategies.context import StrategyContext
from roll_strategies.errors import WeightSyncError
from roll_strategies.fsdp2.groups import Groups
from roll_strategies.fsdp2.options import Fsdp2Options
from roll_strategies.hf.lora import adapter_state, merged_state
from roll_strategies.hf.models import torch_dtype
from roll_strategies.weights.collective import BroadcastTransport
from roll_strategies.weights.colocated import ColocatedTransport
from roll_strategies.weights.plan import Gathered
from roll_strategies.weights.sender import WeightSender
from roll_strategies.weights.transport import Transport


class SourceRanks:
    """One sender per name; rank 0 sends, the others help to gather."""

    def __init__(self, context: StrategyContext, options: Fsdp2Options, groups: Groups) -> None:
        self._context, self._options, self._groups = context, options, groups
        self._senders: dict[str, WeightSender] = {}

    def setup(self, name: str, transport: Transport) -> None:
        """Prepares updates under `name`."""
        context, options = self._context, self._options
        mine: Transport | None = None
        if context.rank == 0:
            mine = transport
            if options.update_transport == "broadcast":
                mine = BroadcastTransport(
                    transport,
                    name=f"{context.cluster_name}/{name}",
                    addr=context.master_addr,
                    backend=context.collective_backend,
                    timeout_s=context.collective_timeout_s,
                )
            elif options.update_transport == "colocated":
                mine = ColocatedTransport(transport, device=torch.device(context.device_type))
        self._senders[name] = WeightSender(
            transport=mine,
            bucket_bytes=context.update_bucket_bytes,
            digest=options.digest,
            timeout_s=context.update_timeout_s,
            dtype=torch_dtype(options.sync_dtype, path="strategy_config.sync_dtype")
            if options.sync_dtype
            else None,
            agree=self._agree,
        )

    def send(self, name: str, model: nn.Module, *, version: int) -> dict[str, float]:
        """Sends the model's state; every rank calls it."""
        sender = self._senders.get(name)
        if sender is None:
            raise WeightSyncError(f"no update is set up under {name!r}; there are {sorted(self._senders)}")
        state: Mapping[str, Tensor | Gathered] = (
            adapter_state(model) if self._options.lora_update == "adapter" else merged_state(model)
        )
        return sender.send(state, version=version)

    def _agree(self, problem: str | None) -> str | None:
        box: list[str | None] = [problem]
        dist.broadcast_object_list(box, src=0, group=self._groups.world)
        return box[0]
