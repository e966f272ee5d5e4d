import re

from hypothesis import given
from hypothesis import strategies as st

from palestra.foundation.statistics import distribution
from palestra.plots.axes import PALETTE, color_of, round_ticks, ticks_inside
from palestra.plots.bars import quantile_bars

numbers = st.floats(-1e9, 1e9)


@given(low=numbers, high=numbers)
def test_ticks_cover_the_range_in_equal_round_steps(low: float, high: float) -> None:
    low, high = sorted((low, high))
    ticks = round_ticks(low, high)
    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + 1e-6 * step
    assert ticks[-1] >= high - 1e-6 * step
    assert 2 <= len(ticks) <= 7
    assert f"{step:.0e}"[0] in "125" or f"{step:.1e}"[:3] == "2.5"


@given(low=numbers, high=numbers)
def test_ticks_inside_lie_inside(low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert all(low <= tick <= high for tick in ticks_inside(low, high))


def test_the_axis_of_a_distribution_has_round_numbers() -> None:
    tokens = distribution([1.0, 2.0, 6.05])
    assert tokens is not None
    svg = quantile_bars([("tokens", tokens)], "tokens per episode")
    ticks = [float(text) for text in re.findall(r'text-anchor="middle" class="soft">([^<]+)<', svg)]
    assert ticks == [0.0, 2.0, 4.0]


def test_colors_repeat_after_the_last() -> None:
    assert [color_of(number) for number in range(2 * len(PALETTE))] == [*PALETTE, *PALETTE]
