"""The errors of this package: each names the thing, the rule, the value and the way out, and pickles."""


class DispatchError(Exception):
    """Anything that this package refuses."""


class TopologyError(DispatchError, ValueError):
    """The coordinates of some ranks break a law of a topology."""


class SplitError(DispatchError, ValueError):
    """The arguments of a call cannot be split as its mode says."""


class CollectError(DispatchError, ValueError):
    """The outputs of the ranks cannot be joined into one result."""


class RegisterError(DispatchError, TypeError):
    """A method, a type or a mode is registered in a way that cannot work."""


class ArgumentError(DispatchError, TypeError):
    """The arguments of a call do not fit the signature of the method."""


class BalanceError(DispatchError, ValueError):
    """A partition by cost that no assignment can satisfy is asked for."""
