"""The model of a run: what must hold whatever the constants are."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.cluster.plan import EngineFigures, Workload, plan
from palestra.cluster.simulation import CONSTANTS, Constants, simulate
from palestra.cluster.worlds import WORLDS, read_worlds
from palestra.errors import UsageError

FREE = Constants("2026-01-01", "none", 1e-6, 0.01, 1e-6, 1e-6, 1e-6, 1000.0, 5.0)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_workers_that_compute_are_as_fast_as_their_cores(workers: int) -> None:
    found = simulate(FREE, workers=workers, concurrency=4, turns=5, episode_cpu=0.01)
    assert found.rate == pytest.approx(workers * 100, rel=0.03)
    assert found.busy["workers"] == pytest.approx(1.0, abs=0.05)


def test_workers_that_wait_are_as_fast_as_the_model_answers() -> None:
    found = simulate(FREE, workers=2, concurrency=50, turns=4, episode_cpu=0.0, think=lambda streams: 0.25)
    assert found.rate == pytest.approx(100, rel=0.05)
    assert found.busy["workers"] < 0.05


def test_a_slow_driver_is_the_limit() -> None:
    slow = Constants("2026-01-01", "none", 1e-6, 0.01, 0.0, 0.001, 0.01, 1000.0, 5.0)
    found = simulate(slow, workers=8, concurrency=16, turns=1, episode_cpu=0.0001)
    assert found.rate == pytest.approx(100, rel=0.05)
    assert found.busy["driver"] == pytest.approx(1.0, abs=0.05)


@settings(max_examples=12, deadline=None)
@given(st.floats(0.001, 0.1), st.integers(1, 6), st.integers(1, 8), st.integers(1, 6), st.floats(0.0, 0.2))
def test_no_prediction_is_faster_than_its_parts(cpu: float, workers: int, concurrency: int, turns: int, wait: float) -> None:
    found = simulate(FREE, workers=workers, concurrency=concurrency, turns=turns, episode_cpu=cpu, think=lambda _: wait)
    # An episode in hand when the measurement ends may have been begun before it: the margin.
    assert found.rate <= workers / cpu * 1.05
    assert found.rate <= workers * concurrency * 1.25 / max(turns * wait, 1e-9) * 1.05


def test_streams_share_the_engine() -> None:
    engine = EngineFigures(alone=100.0, full=1000.0)
    assert engine.speed(1) == pytest.approx(100.0)
    assert engine.speed(1000) * 1000 == pytest.approx(1000.0, rel=0.01)


@pytest.mark.slow
def test_a_plan_names_what_it_waits_for() -> None:
    assert plan(64, 100, constants=FREE).bottleneck == "too few episodes"
    assert plan(8, 10_000, constants=FREE).bottleneck == "learner"
    heavy = plan(8, 1000, Workload(env_cpu=0.5), constants=FREE)
    light = plan(8, 1000, constants=FREE)
    assert heavy.workers > 20 * light.workers
    assert heavy.dollars > light.dollars


@pytest.mark.slow
def test_more_gpus_are_not_slower() -> None:
    rates = [plan(gpus, 10_000, constants=FREE).rate for gpus in (1, 8, 64)]
    assert rates == sorted(rates)
    assert rates[-1] > 1.5 * rates[0], "more GPUs help while there is work for them"


def test_the_constants_in_the_package_are_read() -> None:
    found = Constants.read().as_dict()
    assert all(found.pop(name) for name in ("date", "machine"))
    assert all(0.0 < cost < 1e6 for cost in found.values())
    with pytest.raises(UsageError):
        Constants.read(CONSTANTS.with_name("none.json"))


@pytest.mark.slow
def test_the_command_prints_a_row_for_each() -> None:
    result = CliRunner().invoke(app, ["plan", "--gpus", "8", "--episodes", "100", "--episodes", "1000"])
    assert result.exit_code == 0
    warning, _, names, *rows = result.stdout.splitlines()
    assert "cores  machines" in names
    assert warning.startswith("Simulated, not measured")
    assert len(rows) == 2


def test_the_costs_of_browsers_in_the_package_are_read() -> None:
    worlds = read_worlds()
    assert set(worlds) == {"miniwob", "site"}
    for costs in worlds.values():
        assert costs.date > "2026"
        assert costs.episodes > 0
        assert costs.load > 0.0
        assert 0.0 < costs.turn_cpu < 10.0
        assert 0.0 < costs.reset_cpu < 10.0
        assert 1.0 < costs.megabytes < 2000.0
    with pytest.raises(UsageError):
        read_worlds(WORLDS.with_name("none.json"))


@pytest.mark.slow
def test_browsers_cost_cores_and_memory() -> None:
    light = plan(8, 1000, Workload(turns=10), constants=FREE)
    resets = plan(8, 1000, Workload(turns=10, env_cpu=0.0, reset_cpu=5.0), constants=FREE)
    assert resets.workers == plan(8, 1000, Workload(turns=10, env_cpu=0.5), constants=FREE).workers > light.workers
    wide = plan(8, 1000, Workload(turns=10, megabytes=1024.0), constants=FREE)
    assert (wide.workers, wide.rate) == (light.workers, light.rate)
    assert (light.cores, wide.cores) == (light.workers, 250)
    assert wide.dollars - light.dollars == pytest.approx((250 - light.workers) * 0.04)
    assert wide.machines == 1 + 4  # 32 of the 250 cores are those of the machine with the GPUs


@pytest.mark.slow
def test_the_command_knows_worlds_and_names_them() -> None:
    options = ["plan", "--gpus", "64", "--episodes", "10000", "--turns", "15", "--json"]
    light, heavy = (CliRunner().invoke(app, [*options, *more]) for more in ([], ["--world", "site"]))
    assert json.loads(heavy.stdout)["plans"][0]["workers"] > 10 * json.loads(light.stdout)["plans"][0]["workers"]
    shown = CliRunner().invoke(app, [*options[:-1], "--world", "site"])
    assert shown.stdout.splitlines()[2].startswith("site: ")
    assert re.search(r" \d+ episodes, load average \d+\.\d\)$", shown.stdout.splitlines()[2])
    for wrong in (["--world", "moon"], ["--world", "site", "--env-cpu", "3"]):
        refused = CliRunner().invoke(app, [*options, *wrong])
        assert refused.exit_code != 0
        assert "miniwob, site" in refused.stderr + str(refused.exception)
