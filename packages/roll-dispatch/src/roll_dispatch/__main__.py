"""`python -m roll_dispatch explain MODE ...`: which rows go where, and which ranks answer."""

import argparse
import sys
from collections.abc import Sequence

from roll_dispatch.errors import DispatchError
from roll_dispatch.explain import explain
from roll_dispatch.modes import Dispatch
from roll_dispatch.topology import Topology


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(prog="python -m roll_dispatch", description=__doc__)
    actions = command.add_subparsers(dest="action", required=True)
    one = actions.add_parser("explain", help="draw which rows go where and which ranks answer")
    one.add_argument("mode", help=f"one of {', '.join(Dispatch.names())}, over:dp,cp, direct:dp or balanced")
    for axis in ("dp", "tp", "pp", "cp", "ep"):
        one.add_argument(f"--{axis}", type=int, default=1, help=f"size of {axis} (default 1)")
    one.add_argument(
        "--order", default="tp-cp-dp-pp", help="axes from fastest to slowest (default %(default)s)"
    )
    one.add_argument(
        "--rows", type=int, default=None, help="number of rows (default: 8, ALL_TO_ALL: one per rank)"
    )
    one.add_argument("--to", type=_numbers, help="for DIRECT: the rank of each row, 0,1,0")
    one.add_argument("--costs", type=_numbers, help="for balanced: the cost of each row, 5,1,1")
    one.add_argument("--pad", action="store_true", default=None, help="fill the parts by repeating rows")
    one.add_argument("--empty", choices=("send", "skip"), help="what happens to parts without rows")
    one.add_argument("--svg", metavar="FILE", help="also draw a picture")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)
    try:
        world = given.dp * given.tp * given.pp * given.cp
        topology = Topology.from_sizes(
            world, tp=given.tp, pp=given.pp, cp=given.cp, ep=given.ep, order=given.order
        )
        mode = _mode(given.mode).with_options(pad=given.pad, empty=given.empty)
        default = world if mode is Dispatch.ALL_TO_ALL else len(given.to or given.costs or range(8))
        rows = default if given.rows is None else given.rows
        told = explain(mode, topology, rows, to=given.to, costs=given.costs)
    except DispatchError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{told}\n")
    if given.svg:
        from roll_dispatch.svg import draw

        with open(given.svg, "w", encoding="utf-8") as file:
            file.write(draw(told))
    return 0


def _mode(name: str) -> Dispatch:
    kind, _, axes = name.partition(":")
    if kind == "over":
        return Dispatch.over(*axes.split(","))
    if kind == "direct":
        return Dispatch.direct(*axes.split(",")) if axes else Dispatch.DIRECT
    return Dispatch.balanced("costs") if kind == "balanced" else Dispatch.named(name)


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


if __name__ == "__main__":
    sys.exit(main())
