"""Only the setting that grows changes, and the table and the figure have every point."""

from dataclasses import replace

import pytest

from benchmarks import shapes
from benchmarks.growth import ARCHITECTURES, AXES, Point, as_markdown, draw, with_states


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_d_state_changes_the_keys_and_not_the_values(architecture):
    tiny = shapes.TINY[architecture]
    if architecture == "rwkv6":
        tiny = replace(tiny, n_layer=1)
    model = shapes.model(with_states(tiny, 32))
    before, after = (m.zero_state(1).layer(0)["recurrent"].shape for m in (shapes.model(tiny), model))
    changed = after[-1] if architecture == "mamba1" else after[2]
    assert changed == 32
    assert before[1] == after[1]
    assert architecture == "mamba1" or before[3] == after[3]


def test_the_table_and_the_figure_have_every_point_and_are_the_same_each_time(tmp_path):
    points = [
        Point(architecture=name, axis=axis, value=value, microseconds=100.0 + value)
        for name in ARCHITECTURES
        for axis, values in AXES.items()
        for value in values
    ]
    lines = as_markdown(points).splitlines()
    assert lines[0] == "| | gla | mamba1 | mamba2 | rwkv6 |"
    assert len(lines) == 2 + sum(map(len, AXES.values()))
    for name in ("one.svg", "two.svg"):
        draw(points, tmp_path / name)
    assert (tmp_path / "one.svg").read_text() == (tmp_path / "two.svg").read_text()
