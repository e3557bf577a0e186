"""The pytest plugin: topologies and random rank bijections as fixtures.

A test that takes `roll_topology` runs once for every shape of at most 8 ranks (`--roll-max-world-size`, or
`@pytest.mark.roll_topologies(max_world_size=4)`). `roll_bijections` is a function from a topology to others
with the same coordinates at randomly other ranks.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from roll_dispatch.topology import Topology

# The imports of roll_dispatch wait until a test asks: this module is loaded in every pytest session.
DEFAULT_MAX_WORLD_SIZE = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("roll-dispatch", "topologies of roll-dispatch")
    group.addoption(
        "--roll-max-world-size",
        type=int,
        default=DEFAULT_MAX_WORLD_SIZE,
        help="the most ranks of the topologies that roll_topology runs over (default: %(default)s)",
    )
    group.addoption("--roll-seed", type=int, default=0, help="seed of roll_bijections (default: %(default)s)")


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line(
        "markers", "roll_topologies(max_world_size): the most ranks of the topologies of roll_topology"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `roll_topology` once per topology."""
    if "roll_topology" not in metafunc.fixturenames:
        return
    from roll_dispatch.testing import all_topologies

    marker = metafunc.definition.get_closest_marker("roll_topologies")
    size = metafunc.config.getoption("--roll-max-world-size")
    if marker is not None:
        size = marker.args[0] if marker.args else marker.kwargs["max_world_size"]
    found = all_topologies(size)
    metafunc.parametrize("roll_topology", found, ids=[_name(topology) for topology in found])


@pytest.fixture
def roll_topologies(request: pytest.FixtureRequest) -> "list[Topology]":
    """Return a topology of every shape of at most `--roll-max-world-size` ranks."""
    from roll_dispatch.testing import all_topologies

    return all_topologies(request.config.getoption("--roll-max-world-size"))


@pytest.fixture
def roll_bijections(request: pytest.FixtureRequest) -> "Callable[..., Iterator[Topology]]":
    """Return `bijections(topology, count=10)`, seeded by `--roll-seed`."""
    from roll_dispatch.testing import bijections

    seed = request.config.getoption("--roll-seed")

    def shuffled(topology: "Topology", count: int = 10) -> "Iterator[Topology]":
        return bijections(topology, count, seed=seed)

    return shuffled


def _name(topology: "Topology") -> str:
    return "-".join(f"{axis}{size}" for axis, size in topology.sizes.items() if axis != "ep")
