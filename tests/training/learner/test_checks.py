"""What the checks before the first step take for rounding, and what for an error."""

from collections.abc import Callable

import pytest
import torch
from tests.training.tiny import learner_of, tiny_network

from palestra.errors import Unsupported
from palestra.training.learner.checks import _TOLERANCE, _difference, check_context, check_head, check_packing, check_sharing
from palestra.training.learner.context import ContextGroup
from palestra.training.learner.model import ActorCritic

pytestmark = pytest.mark.torch


def test_rounding_in_one_large_dimension_is_no_error() -> None:
    """As in SmolLM2: one dimension is fifty times as large as the mean, and bfloat16 rounds it by an eighth of the mean."""
    states = torch.ones(1, 20, 576)
    states[..., 7] = 50.0
    rounded = states.clone()
    rounded[..., 7] += 0.125
    assert _difference(rounded, states) < _TOLERANCE["float32"]


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_one_wrong_position_of_many_is_an_error(compute: str) -> None:
    states = torch.randn(1, 200, 64, generator=torch.Generator().manual_seed(0))
    leaking = states.clone()
    leaking[0, 12] += 0.2 * states[0, 11]
    assert _difference(leaking, states) > _TOLERANCE[compute]


@pytest.mark.parametrize("check", [check_packing, check_sharing, check_context])
@pytest.mark.parametrize(("compute", "accepted", "refused"), [("float32", 9e-3, 0.02), ("bfloat16", 0.09, 0.2)])
def test_a_check_accepts_rounding_and_refuses_another_result(
    check: Callable[[ActorCritic], None],
    compute: str,
    accepted: float,
    refused: float,
    alone: ContextGroup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = tiny_network(compute=compute)
    network.context = alone
    for training in (True, False):
        network.train(training)
        check(network)
        assert network.training == training
    monkeypatch.setattr("palestra.training.learner.checks._difference", lambda *_: accepted)
    check(network)
    for difference in (refused, float("nan")):
        monkeypatch.setattr("palestra.training.learner.checks._difference", lambda *_, found=difference: found)
        with pytest.raises(Unsupported, match="hidden states differ by"):
            check(network)


@pytest.mark.parametrize("check", [check_head, check_packing, check_sharing])
def test_a_check_computes_as_in_sampling(check: Callable[[ActorCritic], None]) -> None:
    network, modes = learner_of().network, list[tuple[bool, bool]]()
    network.language_model.get_decoder().register_forward_hook(
        lambda module, *_: modes.append((module.training, torch.is_grad_enabled()))
    )
    network.train()
    check(network)
    assert set(modes) == {(False, False)}


@pytest.mark.parametrize(("factor", "sound"), [(1.0 + 1e-6, True), (1.02, False), (0.5, False)])
def test_a_model_that_bends_its_logits_is_refused(factor: float, sound: bool) -> None:
    network = tiny_network()
    model = network.language_model
    original = model.forward
    model.forward = lambda *args, **kwargs: type("Out", (), {"logits": original(*args, **kwargs).logits * factor})()
    if sound:
        return check_head(network)
    with pytest.raises(Unsupported, match="LlamaForCausalLM transforms its logits after the head"):
        check_head(network)
    return None


def test_packed_segments_that_see_each_other_are_refused() -> None:
    network = tiny_network()
    hidden = network.hidden

    def leaking(inputs: object) -> object:
        found, states = hidden(inputs)  # type: ignore[arg-type]
        return found, states + 0.1 * states.roll(1, dims=1)

    network.hidden = leaking  # type: ignore[method-assign, assignment]
    with pytest.raises(Unsupported, match=r'packed segments see each other.*learner\.packing\.layout = "padded"'):
        check_packing(network)
