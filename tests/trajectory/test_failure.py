"""``Failure.of`` looks at exceptions that strangers wrote."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.rollouts.hostile import ERRORS, TextWithMethods, refuse

from palestra.errors import Boundary, InfrastructureError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.trajectory import Failure, Phase


def without_a_name() -> Exception:
    class Unnamed(type):
        def __getattribute__(cls, name: str) -> Any:
            return refuse() if name == "__qualname__" else super().__getattribute__(name)

    return Unnamed("NoName", (Exception,), {})()  # type: ignore[no-any-return]


# Made in the test: pytest looks at what it collects.
UNUSUAL = (
    "no text",
    "text of another type",
    "text with methods",
    "text of surrogates",
    "no cause",
    "a cause of itself",
    "no class",
)
MAKERS = [without_a_name, *(ERRORS[name] for name in (*UNUSUAL, "wrong fields", "a group"))]


@pytest.mark.parametrize("make", MAKERS)
def test_a_failure_is_recorded_whatever_its_exception_does(make: Callable[[], BaseException]) -> None:
    failure = Failure.of(make(), Phase.STEP)
    assert failure.boundary is Boundary.ENV
    assert failure.message
    assert failure.kind
    assert decode_json(encode_json(failure), Failure) == failure


def test_the_boundary_of_an_exception_that_states_one_is_kept() -> None:
    assert Failure.of(InfrastructureError("gone"), Phase.STEP).boundary is Boundary.INFRASTRUCTURE
    assert Failure.of(ValueError("x"), Phase.ACT).boundary is Boundary.POLICY
    assert Failure.of(TextWithMethods(), Phase.STEP).message == "said"


def test_a_message_is_cut_at_4000_characters() -> None:
    assert [len(Failure.of(ValueError("x" * length), Phase.STEP).message) for length in (4000, 4001)] == [4000, 4000]
