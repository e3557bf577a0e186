"""Plans as tables, grids and SVG."""

import re
from xml.etree import ElementTree

from roll_resources import DevicePool, Plan, RoleRequest, grid, plan, svg, table


def small_plan() -> Plan:
    return plan(
        [
            RoleRequest(name="train", device_mapping="0-1"),
            RoleRequest(name="infer", device_mapping="1-2,3", num_gpus_per_worker=1),
            RoleRequest(name="<reward>", world_size=3),
        ],
        DevicePool.uniform(nodes=2, gpus_per_node=2),
    )


def test_the_table_has_a_line_per_worker() -> None:
    lines = table(small_plan()).splitlines()
    assert lines[0].split() == [
        "role",
        "rank",
        "node",
        "local",
        "rank",
        "devices",
        "(global)",
        "devices",
        "(local)",
        "cpus",
        "resources",
    ]
    assert len(lines) == 2 + 2 + 3 + 3 + 1
    assert lines[2].split() == ["train", "0", "node0", "0", "0", "0", "0.01", "-"]
    assert lines[-1] == "shared by train, infer: devices 1"


def test_the_grid_shows_who_uses_each_device() -> None:
    assert grid(small_plan()).splitlines() == [
        "A train  B infer  C <reward>",
        "node0  0:A0  1:A1+B0  cpu:C0,2",
        "node1  0:B1  1:B2     cpu:C1",
    ]


def test_the_picture_is_well_formed_and_names_every_use() -> None:
    root = ElementTree.fromstring(svg(small_plan()))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        "0: train rank 0",
        "1: train rank 1, infer rank 0",
        "cpu: <reward> ranks 0,2",
        "0: infer rank 1",
        "1: infer rank 2",
        "cpu: <reward> rank 1",
    ]
    width = float(root.attrib["width"])
    ends = [
        float(r.attrib["x"]) + float(r.attrib["width"]) for r in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert max(ends) <= width


def test_a_long_legend_goes_on_in_the_next_line() -> None:
    roles = [RoleRequest(name=f"a role with a long name {number}") for number in range(6)]
    root = ElementTree.fromstring(svg(plan(roles, DevicePool.uniform())))
    texts = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if "role" in (text.text or "")]
    assert len(texts) == 6
    ends = [float(text.attrib["x"]) + 7 * len(str(text.text)) for text in texts]
    assert max(ends) <= float(root.attrib["width"])
    assert len({text.attrib["y"] for text in texts}) > 1


def test_on_a_terminal_each_role_has_its_colour_and_columns_stay_even() -> None:
    plain, painted = grid(small_plan()), grid(small_plan(), colour=True)
    assert "\x1b[38;2;68;119;170mA0\x1b[0m" in painted
    assert "\x1b[38;2;238;102;119mB0\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain
