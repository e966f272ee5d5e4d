"""Graders and group rewards: plain or async, a function, a class or an object."""

import pytest

from palestra import collect
from palestra.foundation.references import Hook
from palestra.recipes.play import GRADER
from palestra.training.rescoring import Rescoring
from palestra.trajectory import Trajectory, TrajectoryGroup

pytestmark = pytest.mark.torch


def plain(trajectory: Trajectory, by: float = 1.0) -> float:
    return 5.0 * by


async def waiting(trajectory: Trajectory, by: float = 1.0) -> float:
    return 5.0 * by


class Judge:
    def __init__(self, by: float = 1.0) -> None:
        self.by = by

    async def __call__(self, trajectory: Trajectory, by: float | None = None) -> float:
        return 5.0 * (self.by if by is None else by)


judge = Judge()


@pytest.mark.parametrize("name", ["plain", "waiting", "Judge", "judge"])
async def test_a_grader_is_called_whatever_kind_of_object_it_is(name: str) -> None:
    played = collect("game:GuessTheNumber-v0-easy", "oracle", n=1, group_size=2, progress=False)
    groups = [TrajectoryGroup(played[0].task, tuple(played))]
    hooks: list[tuple[Hook, float]] = [(f"{__name__}:{name}", 5.0), ({"use": f"{__name__}:{name}", "by": 3.0}, 15.0)]
    for hook, reward in hooks:
        (scored,) = await Rescoring(GRADER.load(hook), None).apply(groups)
        assert [member.reward for member in scored.members] == [reward, reward]
