"""How a call's arguments are split over workers and its results joined."""

from roll_dispatch.arguments import Broadcast, Direct, Split
from roll_dispatch.balance import Division, balance
from roll_dispatch.call import Call, check_arguments, collect, plan_call, split
from roll_dispatch.errors import (
    ArgumentError,
    BalanceError,
    CollectError,
    DispatchError,
    RegisterError,
    SplitError,
    TopologyError,
)
from roll_dispatch.kinds import register_splittable
from roll_dispatch.microbatches import MicroBatchPlan, plan_micro_batches
from roll_dispatch.modes import Dispatch, register_dispatch
from roll_dispatch.rank_info import RankInfo
from roll_dispatch.register import Execute, Route, register, registered_methods
from roll_dispatch.simulate import Received, Simulation, simulate
from roll_dispatch.topology import Topology

__all__ = [
    "ArgumentError",
    "BalanceError",
    "Broadcast",
    "Call",
    "CollectError",
    "Direct",
    "Dispatch",
    "DispatchError",
    "Division",
    "Execute",
    "MicroBatchPlan",
    "RankInfo",
    "Received",
    "RegisterError",
    "Route",
    "Simulation",
    "Split",
    "SplitError",
    "Topology",
    "TopologyError",
    "balance",
    "check_arguments",
    "collect",
    "plan_call",
    "plan_micro_batches",
    "register",
    "register_dispatch",
    "register_splittable",
    "registered_methods",
    "simulate",
    "split",
]
