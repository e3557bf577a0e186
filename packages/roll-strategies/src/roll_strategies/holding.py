"""What engines share that hold their model as a torch module: giving memory back, and taking updates."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from roll_strategies.context import StrategyContext
from roll_strategies.errors import NotInitialized
from roll_strategies.interfaces import InferenceStrategy
from roll_strategies.offload import Parking, StateKind, state_kinds
from roll_strategies.weights.manifest import Bucket, CollectiveGroup, Manifest, UpdateReceipt
from roll_strategies.weights.target import UpdateTarget


class ModelHolder(InferenceStrategy):
    """An engine whose parameters are tensors of one torch module in this process.

    A subclass calls `hold` in `initialize`, and `require_states` before it computes.
    """

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._parking = Parking()
        self._target: UpdateTarget | None = None

    def hold(self, model: nn.Module, *, digest: str, named: Mapping[str, Tensor] | None = None) -> None:
        """Keeps the model and makes it the target of updates.

        Args:
            model: updates are copied into its tensors.
            digest: `sampled` or `full`: how much of each arriving parameter is checked.
            named: the tensors that an update brings, by name; None means the model's whole state.
        """
        self.model = model
        self._target = UpdateTarget(model, rank=self.context.rank, digest=digest, named=named)

    @property
    def target(self) -> UpdateTarget:
        """The receiving end of updates.

        Raises:
            NotInitialized: `initialize` has not run.
        """
        if self._target is None:
            name = self.context.strategy_name
            raise NotInitialized(f"strategy {name!r} has no model yet; call initialize() first")
        return self._target

    # -- states

    def tensors_of(self, kind: StateKind) -> list[Tensor]:
        """Returns the tensors of one kind of state; a subclass that keeps more adds them."""
        model = self.unwrap_model()
        if kind is StateKind.MODEL_PARAMS:
            return [*model.parameters(), *model.buffers()]
        if kind is StateKind.GRADIENTS:
            return [p.grad for p in model.parameters() if p.grad is not None]
        return []

    def settle(self) -> None:
        """Brings parameters to where they rest between calls; for engines that gather them to compute."""

    def load_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        """Brings states back; those that are here already stay as they are."""
        for kind in state_kinds(include):
            self._parking.unpark(kind)

    def offload_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        """Gives the memory of states back."""
        self.settle()
        for kind in state_kinds(include):
            self._parking.park(kind, self.tensors_of(kind))

    def require_states(self, *kinds: StateKind) -> None:
        """Makes sure that parameters, and the states of `kinds`, are here and of one version.

        Raises:
            StaleWeights: an update is under way or was given up halfway.
        """
        self.target.require_whole()
        for kind in (StateKind.MODEL_PARAMS, *kinds):
            self._parking.unpark(kind)

    # -- target of updates

    def setup_collective_group(self, group: CollectiveGroup) -> str:
        """Joins the group of a broadcast transport."""
        return self.target.setup_collective_group(group)

    def begin_update(self, manifest: Manifest) -> int:
        """Opens an update; parameters that were offloaded come back for it."""
        target = self.target
        self.settle()
        self._parking.unpark(StateKind.MODEL_PARAMS)
        return target.begin_update(manifest)

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        """Takes this rank's part of one bucket."""
        return self.target.update_parameter_in_bucket(bucket)

    def commit_update(self, version: int) -> UpdateReceipt:
        """Closes an update; the engine computes with this version from now on."""
        receipt = self.target.commit_update(version)
        self.process_weights_after_loading()
        self.weights_version = version
        return receipt

    def abort_update(self, version: int) -> int:
        """Gives an update up."""
        return self.target.abort_update(version)
