"""Broadcasts of large parameters, which are sent from and received into their own memory."""

import dataclasses

import pytest
import torch
from torch import Tensor

from roll_strategies import Bucket, StaleWeights, UpdateTarget, WeightSender, WeightSyncError
from roll_strategies.testing import DirectTransport
from roll_strategies.weights.collective import BroadcastTransport


def large_and_small(seed: int) -> dict[str, Tensor]:
    """Returns parameters above and below the size from which they travel on their own, in every order."""
    draws = torch.Generator().manual_seed(seed)
    shapes = {
        "a": (3,),
        "b": (600, 500),
        "c": (0, 4),
        "d": (500, 700),
        "e": (2, 2),
        "f": (5,),
        "g": (900, 311),
    }
    state = {name: torch.randn(shape, generator=draws) for name, shape in shapes.items()}
    state["turned"] = torch.randn(500, 611, generator=draws).T
    state["halves"] = torch.randn(700, 999, generator=draws).to(torch.bfloat16)
    state["last"] = torch.randn((), generator=draws)
    return state


class Home(torch.nn.Module):
    """A model that has those parameters, one of them in another dtype."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        for name, value in state.items():
            dtype = torch.float64 if name == "d" else value.dtype
            self.register_buffer(name, torch.zeros(value.shape, dtype=dtype))


@pytest.mark.parametrize("bucket_bytes", [1, 2_000_000, 10**9])
def test_large_parameters_travel_between_their_own_places_and_small_ones_together(bucket_bytes: int) -> None:
    homes = [Home(large_and_small(0)) for _ in range(2)]
    targets = [UpdateTarget(home, rank=rank, digest="full") for rank, home in enumerate(homes)]
    transport = BroadcastTransport(DirectTransport(targets), name="large", addr="127.0.0.1", timeout_s=60)
    for version in (1, 2):
        sent = large_and_small(version)
        WeightSender(transport=transport, bucket_bytes=bucket_bytes, digest="full").send(
            sent, version=version
        )
        for home in homes:
            for name, value in sent.items():
                assert torch.equal(getattr(home, name), value.to(getattr(home, name).dtype)), name
    transport.close()


def test_a_parameter_that_was_damaged_in_place_is_named_and_the_target_refuses_to_compute() -> None:
    def spoil(index: int, method: str, payload: object) -> object:
        if index == 0 or not isinstance(payload, Bucket) or payload.version != 1:
            return payload
        entries = [dataclasses.replace(e, digest=e.digest ^ (e.name == "g")) for e in payload.entries]
        return dataclasses.replace(payload, entries=tuple(entries))

    targets = [UpdateTarget(Home(large_and_small(0)), rank=rank, digest="full") for rank in range(2)]
    control = DirectTransport(targets, spoil=spoil)
    transport = BroadcastTransport(control, name="damaged", addr="127.0.0.1", timeout_s=60)
    sender = WeightSender(transport=transport, bucket_bytes=2_000_000, digest="full")
    with pytest.raises(
        WeightSyncError, match=r"put of bucket .*target rank 1: parameter 'g' arrived damaged"
    ):
        sender.send(large_and_small(1), version=1)
    with pytest.raises(StaleWeights, match="rank 1 holds mixed weights: update 1 was given up halfway"):
        targets[1].require_whole()
    sender.send(large_and_small(2), version=2)
    for target in targets:
        target.require_whole()
    transport.close()
