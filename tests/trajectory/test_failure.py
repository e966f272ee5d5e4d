"""``Failure.of`` looks at exceptions that strangers wrote."""

from collections.abc import Callable
from typing import Any

import pytest

from palestra.encoding import decode_json, encode_json
from palestra.errors import Boundary, EnvError, InfrastructureError
from palestra.trajectory import Failure, Phase


class NotNow(BaseException):
    pass


def refuse(*_: object) -> Any:
    raise NotNow


class NoText(Exception):
    __str__ = __repr__ = refuse


class TextOfAnotherType(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class NoCause(OSError):
    __cause__ = property(refuse)
    errno = property(refuse)


class OwnText(str):
    encode = isascii = __len__ = refuse  # type: ignore[assignment]


class TextWithMethods(Exception):
    def __str__(self) -> str:
        return OwnText("said")


class WrongFields(EnvError):
    kind = detail = 7  # type: ignore[assignment]
    boundary = "nowhere"  # type: ignore[assignment]


def without_a_class() -> Exception:
    return type("NoClass", (Exception,), {"__class__": property(refuse)})()  # type: ignore[no-any-return]


def without_a_name() -> Exception:
    class Unnamed(type):
        def __getattribute__(cls, name: str) -> Any:
            return refuse() if name == "__qualname__" else super().__getattribute__(name)

    return Unnamed("NoName", (Exception,), {})()  # type: ignore[no-any-return]


def looped() -> Exception:
    error = ValueError("round and round")
    error.__cause__ = error
    return error


# Made in the test: pytest looks at what it collects.
ERRORS: list[Callable[[], BaseException]] = [
    NoText,
    TextOfAnotherType,
    NoCause,
    TextWithMethods,
    WrongFields,
    without_a_class,
    without_a_name,
    looped,
    lambda: ValueError("\ud800"),
    lambda: BaseExceptionGroup("g", [NoText(), KeyboardInterrupt()]),
]


@pytest.mark.parametrize("make", ERRORS)
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
