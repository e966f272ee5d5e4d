import errno

import pytest

from palestra.errors import (
    Boundary,
    GraderError,
    InfrastructureError,
    MissingData,
    MissingExtra,
    UsageError,
    boundary_of,
    is_infrastructure,
)


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InfrastructureError("down"), True),
        (MissingExtra("pip install x"), True),
        (MissingData("palestra prefetch x"), True),
        (OSError(errno.EMFILE, "used up"), True),
        (BlockingIOError(errno.EAGAIN, "used up"), True),
        (ExceptionGroup("", [ValueError(), ExceptionGroup("", [OSError(errno.ENOSPC, "")])]), True),
        (_caused(RuntimeError(), _caused(ValueError(), OSError(errno.ENOMEM, ""))), True),
        (UsageError("wrong"), False),
        (OSError(errno.ENOENT, "no such file"), False),
        (OSError("without a number"), False),
        (MemoryError(), False),
        (ExceptionGroup("", [ValueError()]), False),
        (None, False),
    ],
    ids=repr,
)
def test_the_failures_of_a_machine_are_told_from_all_others(error: BaseException | None, expected: bool) -> None:
    assert is_infrastructure(error) is expected


def test_an_error_says_its_boundary_itself_or_is_blamed() -> None:
    assert boundary_of(GraderError("x"), Boundary.ENV) is Boundary.GRADER
    assert boundary_of(OSError(errno.EMFILE, "x"), Boundary.POLICY) is Boundary.INFRASTRUCTURE
    assert boundary_of(KeyError("x"), Boundary.POLICY) is Boundary.POLICY
