"""Compiled layers: the same gradient, few compilations, and a sentence where nothing can be compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.training.tiny import gradients, learner_of, measured_batch, tiny_network

from palestra.errors import UsageError
from palestra.recipes.learner import Layout
from palestra.recipes.model import LoraSettings
from palestra.training.learner.compiling import check_compiler

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),  # of torch's own tracing
]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_compiled_layers_give_the_same_gradient(layout: Layout) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    # aot_eager traces and differentiates as every backend does, and compiles nothing.
    plain, compiled = (learner_of(60, network=tiny_network(compile=name), layout=layout) for name in ("", "aot_eager"))
    batch = measured_batch(compiled)
    for learner in (plain, compiled):
        learner.accumulate(batch)
    assert float((gradients(compiled) - gradients(plain)).abs().max()) <= 1e-5
    assert float(gradients(plain).abs().max()) > 1e-3
    # torch compiles micro-batches of one row apart from those of several rows, and this batch has one.
    compiled.accumulate(measured_batch(compiled, seed=1))
    graphs = counters["stats"]["unique_graphs"]
    compiled.accumulate(measured_batch(compiled, seed=2))
    assert counters["stats"]["unique_graphs"] == graphs > 0, "other lengths and other segments are compiled again"


@pytest.mark.slow
def test_recomputed_adapters_are_compiled_as_well() -> None:
    torch._dynamo.reset()
    plain = learner_of(60, network=tiny_network(lora=LoraSettings(rank=2)))
    batch = measured_batch(plain)
    plain.accumulate(batch)
    other = learner_of(60, network=tiny_network(lora=LoraSettings(rank=2), compile="aot_eager", recompute=True))
    other.network.load_state_dict(plain.network.state_dict())
    other.accumulate(batch)
    assert float((gradients(other) - gradients(plain)).abs().max()) <= 1e-5


def test_every_layer_is_compiled_for_any_length_after_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, bool]] = []
    passes: list[int] = []

    def compile_(function: Callable[..., Any], *, backend: str, dynamic: bool = False) -> Callable[..., Any]:
        if dynamic:
            compiled.append((backend, passes[-1] > 0))
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    network = tiny_network(compile="made-up")
    passes.append(0)
    network.language_model.get_decoder().register_forward_hook(lambda *_: passes.append(passes[-1] + 1))
    learner = learner_of(network=network, layout="packed")
    assert compiled == [("made-up", True)] * 2
    learner.accumulate(measured_batch(learner))


@pytest.mark.parametrize(("said", "named"), [("\n\nno C++ compiler\nmore", "no C++ compiler"), ("", "RuntimeError")])
def test_without_a_compiler_a_sentence_says_so(said: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(function: Callable[..., Any], *, backend: str) -> Callable[..., Any]:
        def run(numbers: torch.Tensor) -> torch.Tensor:
            assert (backend, numbers.device.type) == ("inductor", "cpu")
            raise RuntimeError(said)

        return run

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(UsageError) as refused:
        check_compiler("inductor", "cpu")
    assert f'model.compile = "inductor" does not work on "cpu" ({named}): install a C++ compiler' in str(refused.value)


@pytest.mark.slow
def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(UsageError, match=r'model\.compile = "nobody" does not work on "cpu"'):
        tiny_network(compile="nobody")
