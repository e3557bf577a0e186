"""Workers that share a process draw what each would draw alone."""

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from roll_strategies import seed_draws
from roll_strategies.own_draws import OwnDraws
from roll_strategies.random_state import random_state, set_random_state

ONES = torch.ones(6)
WAYS: dict[str, Callable[[], Tensor]] = {
    "randn": lambda: torch.randn(3),
    "randint": lambda: torch.randint(100, (3,)),
    "randperm": lambda: torch.randperm(9),
    "rand_like": lambda: torch.rand_like(ONES),
    "normal_": lambda: torch.empty(3).normal_(),
    "bernoulli": lambda: torch.bernoulli(ONES * 0.5),
    "multinomial": lambda: torch.multinomial(ONES, 3),
    "dropout": lambda: nn.functional.dropout(ONES, 0.5),
    "no generator is taken": lambda: torch.native_dropout(ONES, 0.5, True)[0],
    "initial weights": lambda: nn.Linear(3, 3).weight.detach(),
}


def drawn(draws: OwnDraws, way: Callable[[], Tensor], *, beside: bool) -> list[Tensor]:
    """Returns four draws in two calls."""

    def call() -> AbstractContextManager[None]:
        return draws.beside_others() if beside else draws.in_place()

    with call():
        found = [way(), way()]
    with call():
        return [*found, way(), way()]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_draw_gives_a_worker_the_same_beside_others_as_alone(way: str) -> None:
    before = torch.get_rng_state()
    alone = drawn(OwnDraws("actor-0"), WAYS[way], beside=False)
    beside = drawn(OwnDraws("actor-0"), WAYS[way], beside=True)
    other = drawn(OwnDraws("actor-1"), WAYS[way], beside=True)

    assert torch.equal(torch.stack(alone), torch.stack(beside))
    assert not torch.equal(torch.stack(alone), torch.stack(other))
    assert torch.equal(torch.get_rng_state(), before)


def test_python_and_numpy_draw_apart_where_a_worker_has_the_thread() -> None:
    def both() -> tuple[float, float]:
        return random.random(), float(np.random.rand())

    one, other = OwnDraws("actor-0"), OwnDraws("actor-1")
    drivers = random_state()
    with one.in_place():
        first = both()
    with other.in_place():
        assert both() != first
    with one.in_place():
        assert both() != first
    found = both()
    set_random_state(drivers)
    assert both() == found


def test_threads_that_draw_at_one_time_do_not_touch_each_other() -> None:
    def many() -> Tensor:
        return torch.stack([torch.rand(()) + torch.native_dropout(ONES, 0.5, True)[0][0] for _ in range(200)])

    found: dict[str, Tensor] = {}

    def work(name: str) -> None:
        with OwnDraws(name).beside_others():
            found[name] = many()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abcd":
        with OwnDraws(name).in_place():
            assert torch.equal(found[name], many())


@pytest.mark.parametrize("beside", [True, False])
def test_a_seed_and_a_restored_state_count_for_the_worker_alone(beside: bool) -> None:
    draws, before = OwnDraws("actor-0"), torch.get_rng_state()
    with draws.beside_others() if beside else draws.in_place():
        seed_draws(7)
        state, first = random_state(), torch.rand(3)
        again = torch.rand(3)
        set_random_state(state)
        assert torch.equal(torch.rand(3), first)
        assert torch.equal(torch.rand(3), again)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(7)))
