import pickle

import pytest

from roll_dispatch import (
    ArgumentError,
    BalanceError,
    CollectError,
    DispatchError,
    RegisterError,
    SplitError,
    TopologyError,
)


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (TopologyError, ValueError),
        (SplitError, ValueError),
        (CollectError, ValueError),
        (BalanceError, ValueError),
        (RegisterError, TypeError),
        (ArgumentError, TypeError),
    ],
)
def test_errors_belong_to_the_package_and_to_a_standard_family_and_pickle(
    error: type[DispatchError], family: type[Exception]
) -> None:
    one = error("thing, rule, value, way out")
    assert isinstance(one, DispatchError)
    assert isinstance(one, family)
    copy = pickle.loads(pickle.dumps(one))
    assert type(copy) is error
    assert str(copy) == "thing, rule, value, way out"
