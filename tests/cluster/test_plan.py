"""The model of a run: what must hold whatever the constants are."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.cluster.plan import ClusterPlan, EngineFigures, GpuMemory, Refused, Workload
from palestra.cluster.plan import plan as plan_or_refusal
from palestra.cluster.simulation import CONSTANTS, Constants, simulate
from palestra.cluster.worlds import WORLDS, read_worlds
from palestra.errors import UsageError
from palestra.training.memory import RankMemory, in_bytes

FREE = Constants("2026-01-01", "none", 1e-6, 0.01, 1e-6, 1e-6, 1e-6, 1000.0, 5.0)


def plan(*sizes: Any, **options: Any) -> ClusterPlan:
    planned = plan_or_refusal(*sizes, **options)
    assert isinstance(planned, ClusterPlan), planned
    return planned


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
    rates = [plan(gpus, 10_000, constants=FREE).rate for gpus in (4, 8, 64)]
    assert rates == sorted(rates)
    assert rates[-1] > 1.5 * rates[0], "more GPUs help while there is work for them"


def test_the_constants_in_the_package_are_read() -> None:
    found = Constants.read().as_dict()
    assert all(found.pop(name) for name in ("date", "machine"))
    assert all(0.0 < cost < 1e6 for cost in found.values())
    with pytest.raises(UsageError):
        Constants.read(CONSTANTS.with_name("none.json"))


def test_eight_billion_parameters_do_not_train_on_one_gpu() -> None:
    refused = plan_or_refusal(1, 100, constants=FREE)
    assert isinstance(refused, Refused)
    for part in ("80.0 GB", "128.0 GB", "weights 32.0 GB", "gradients 32.0 GB", "optimizer 64.0 GB", "fits: 3"):
        assert part in refused.reason
    assert isinstance(plan_or_refusal(2, 100, constants=FREE), Refused)
    assert plan(3, 100, constants=FREE).learner_bytes == 64e9
    shown = CliRunner().invoke(app, ["plan", "--gpus", "1", "--episodes", "100"])
    assert shown.exit_code == 1
    assert "refused: a GPU has 80.0 GB" in shown.stdout
    assert plan(1, 100, constants=FREE, memory=GpuMemory(size=144e9)).learner_bytes == 144e9  # the weights of a server, too
    assert isinstance(plan_or_refusal(1, 100, constants=FREE, memory=GpuMemory(size=143e9)), Refused)
    assert plan(1, 100, Workload(trained=False), constants=FREE).learner_bytes == 0.0


def test_a_model_that_no_server_holds_or_whose_size_is_not_known_is_refused() -> None:
    for size, reason in ((70e9, "140.0 GB for its weights"), (0.0, "not known")):
        refused = plan_or_refusal(64, 100, constants=FREE, memory=GpuMemory(size, RankMemory.by_size(size)))
        assert isinstance(refused, Refused)
        assert reason in refused.reason
        assert "fewest" not in refused.reason


def test_ranks_that_divide_a_micro_batch_train_together() -> None:
    learner = msgspec.structs.replace(RankMemory.by_size(8e9), divided=4)
    planned = plan(8, 100, constants=FREE, memory=GpuMemory(8e9, learner))
    assert 8 - planned.sampling == 4
    refused = plan_or_refusal(4, 100, constants=FREE, memory=GpuMemory(8e9, learner))
    assert isinstance(refused, Refused)
    assert "context_parallel" in refused.reason
    assert "fits: 5" in refused.reason


def test_larger_models_are_slower_and_smaller_ones_do_not_sample_faster() -> None:
    assert EngineFigures.of(8e9) == EngineFigures()
    assert EngineFigures.of(16e9) == EngineFigures(75.0, 6_250.0, 3_100.0)
    assert EngineFigures.of(4e9) == EngineFigures(150.0, 12_500.0, 12_400.0)


SEARCH = "gpu/scalinginter-search-qwen2.5-7b"
MODELS = {
    "0.1M, planned": ["cpu/guess"],
    "4B": ["gpu/gem-game-qwen3-4b"],
    "7B, LoRA": [SEARCH, "model.lora={rank=64}", "model.recompute=true"],
    "32B": [SEARCH, "model.path=Qwen/Qwen2.5-32B-Instruct"],
}


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("model", MODELS)
def test_the_plan_and_the_dry_run_agree(model: str) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from palestra.recipes.reading import resolve
    from palestra.training.estimate import estimate

    sizes, (recipe, *overrides) = (1, 8, 64), MODELS[model]
    options = [part for gpus in sizes for part in ("--gpus", str(gpus))]
    planned = CliRunner().invoke(app, ["plan", recipe, *overrides, *options, "--episodes", "64", "--json"])
    answer = json.loads(planned.stdout)
    estimated = estimate(resolve(recipe, overrides))
    learner, dry_run = estimated.learner, "\n".join(estimated.lines())
    (total,) = re.findall(r"^memory +(.*?):", dry_run, re.MULTILINE)
    assert {figure["what"]: figure["value"] for figure in answer["figures"]}["learner on one GPU"] == total
    for gpus, row in zip(sizes, answer["plans"], strict=True):
        fitting = [ranks for ranks in range(1, gpus) if learner.on_each_of(ranks) <= 80e9]
        fits = bool(fitting) if gpus > 1 else model != "32B"
        assert ("reason" not in row) == fits, row
        if "reason" not in row and gpus > 1:
            assert gpus - row["sampling"] in fitting
            assert row["learner_bytes"] == learner.on_each_of(gpus - row["sampling"])
    shown = dict(re.findall(r"([\d.]+ [GM]B) on each of (\d)", dry_run))
    assert {text: int(ranks) for text, ranks in shown.items()} == {in_bytes(learner.on_each_of(n)): n for n in (2, 4, 8)}


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
    (site,) = [line for line in shown.stdout.splitlines() if line.startswith("  site ")]
    assert re.search(r" \d+ episodes, load average \d+\.\d\)$", site)
    for wrong in (["--world", "moon"], ["--world", "site", "--env-cpu", "3"]):
        refused = CliRunner().invoke(app, [*options, *wrong])
        assert refused.exit_code != 0
        assert "miniwob, site" in refused.stderr + str(refused.exception)
