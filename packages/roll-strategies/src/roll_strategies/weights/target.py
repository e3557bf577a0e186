"""What an engine that holds a torch module needs to be the target of weight updates."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from roll_strategies.errors import WeightSyncError
from roll_strategies.weights.collective import GroupMember
from roll_strategies.weights.colocated import opened
from roll_strategies.weights.manifest import (
    NOT_IN_GROUP,
    Bucket,
    CollectiveGroup,
    Manifest,
    SharedSpace,
    UpdateReceipt,
)
from roll_strategies.weights.plan import named_state
from roll_strategies.weights.receiver import WeightReceiver


class UpdateTarget:
    """The target methods of a strategy, delegated to a receiver and to the groups that it joined.

    Args:
        model: updates are copied into its tensors.
        rank: this worker's rank.
        digest: `sampled` or `full`.
        named: the tensors that an update brings, by name; None means the model's whole state.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        rank: int,
        digest: str = "sampled",
        named: Mapping[str, Tensor] | None = None,
    ) -> None:
        tensors = named_state(model) if named is None else named
        self._receiver = WeightReceiver(tensors, rank=rank, digest=digest)
        self._rank = rank
        self._groups: dict[str, GroupMember] = {}
        self._spaces: dict[str, Tensor] = {}

    def setup_collective_group(self, group: CollectiveGroup) -> str:
        """Joins a broadcast group, replacing one of the same name."""
        self._leave(group.name)
        self._groups[group.name] = GroupMember.join(group, rank=self._rank)
        return group.name

    def begin_update(self, manifest: Manifest) -> int:
        """Opens an update, and answers NOT_IN_GROUP when this target must be asked into the group first."""
        self._spaces.clear()
        version = self._receiver.begin(manifest)
        member = self._groups.get(manifest.group.name) if manifest.group is not None else None
        joined = manifest.group is None or (member is not None and member.group == manifest.group)
        return version if joined else NOT_IN_GROUP

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        """Takes one bucket: from the message, from its group, or from memory shared with the source."""
        if bucket.group is not None:
            member = self._groups.get(bucket.group)
            if member is None:
                raise WeightSyncError(f"target rank {self._rank} never joined the group {bucket.group!r}")
            try:
                landing = self._receiver.landing(bucket, member.device)
                return self._receiver.put(bucket, member.receive(bucket, landing).part)
            except Exception:
                self._leave(bucket.group)  # or others would wait for what this one never takes
                raise
        data = self._shared(bucket.shared) if bucket.shared is not None else bucket.data
        assert isinstance(data, np.ndarray | Tensor)
        return self._receiver.put(bucket, lambda start, stop: data[start:stop])

    def _leave(self, group: str) -> None:
        member = self._groups.pop(group, None)
        if member is not None:
            member.close()

    def _shared(self, shared: SharedSpace) -> Tensor:
        space = self._spaces.get(shared.key)
        if space is None:
            space = self._spaces[shared.key] = opened(shared, rank=self._rank)
        return space

    def commit_update(self, version: int) -> UpdateReceipt:
        """Closes an update."""
        self._spaces.clear()
        return self._receiver.commit(version)

    def abort_update(self, version: int) -> int:
        """Gives an update up, and leaves all groups: another target may wait for what this one never took."""
        for group in list(self._groups):
            self._leave(group)
        self._spaces.clear()
        return self._receiver.abort(version)

    def require_whole(self) -> None:
        """Raises StaleWeights while the model holds a mixture of two versions."""
        self._receiver.require_whole()
