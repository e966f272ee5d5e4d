"""The ledger: every rollout ends exactly once, even after torn lines and flipped bits (F5)."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.durable.ledger import Ledger, LedgerPosition, State
from palestra.errors import UsageError


def play(ledger: Ledger, first: int, count: int, step: int) -> None:
    """Some rollouts through one training step: one fails and is repeated, one fails for good, one is dropped."""
    names = [f"r{first + i}" for i in range(count)]
    for name in names:
        ledger.issue(name, task="game:x#1")
        ledger.lease(name, "w0")
    ledger.fail(names[0], "WorkerDied", again=True)
    ledger.lease(names[0], "w1", attempt=1)
    ledger.fail(names[1], "EnvError")
    for name in [names[0], *names[2:]]:
        ledger.finish(name)
    ledger.drop(names[2], "stale")
    ledger.consume([names[0], *names[3:]], step)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "a new run" / "ledger") as ledger:
        yield ledger


def test_the_equation_holds_and_names_every_end(ledger: Ledger) -> None:
    play(ledger, 0, 6, step=0)
    play(ledger, 6, 4, step=1)
    ledger.commit(0)
    audit = ledger.audit()
    assert (audit.issued, audit.consumed, audit.committed, audit.failed, audit.dropped) == (10, 6, 4, 2, 2)
    assert audit.attempts_failed == 2
    assert ledger.path.read_bytes().count(b'"attempt":') == 2, "only the second attempts are written with their number"
    assert audit.balanced
    ledger.issue("late")
    assert not ledger.audit().balanced
    assert ledger.rollouts(State.ISSUED) == ["late"]
    ledger.sync()
    with Ledger(ledger.path) as again:
        assert again.audit() == ledger.audit()
        assert again.position == ledger.position


@pytest.mark.parametrize(
    ("history", "event"),
    [
        ((), "lease"),
        (("issue",), "issue"),
        (("issue",), "finish"),
        (("issue",), "consume"),
        (("issue", "lease"), "lease"),
        (("issue", "lease", "finish"), "finish"),
        (("issue", "lease", "finish"), "fail"),
        (("issue", "lease", "finish", "consume"), "consume"),
        (("issue", "lease", "finish", "consume"), "drop"),
        (("issue", "lease", "fail"), "lease"),
        (("issue", "drop"), "lease"),
    ],
)
def test_what_does_not_follow_is_refused_and_not_written(ledger: Ledger, history: tuple[str, ...], event: str) -> None:
    def happen(name: str) -> None:
        {
            "issue": lambda: ledger.issue("r"),
            "lease": lambda: ledger.lease("r"),
            "finish": lambda: ledger.finish("r"),
            "consume": lambda: ledger.consume(["r"], 0),
            "fail": lambda: ledger.fail("r", "EnvError"),
            "drop": lambda: ledger.drop("r", "stale"),
        }[name]()

    for name in history:
        happen(name)
    before = ledger.position
    with pytest.raises(UsageError, match="cannot become"):
        happen(event)
    assert ledger.position == before


def test_rewinding_puts_the_rest_aside_and_the_same_work_writes_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    play(ledger, 0, 5, step=0)
    position = ledger.commit(0)
    play(ledger, 5, 5, step=1)
    ledger.close()
    whole = path.read_bytes()
    resumed = Ledger(path)
    resumed.rewind(position)
    assert resumed.audit().issued == 5
    aside = next(tmp_path.glob("ledger.aside-*"))
    assert whole == path.read_bytes() + aside.read_bytes()
    play(resumed, 5, 5, step=1)
    resumed.close()
    assert path.read_bytes() == whole


def test_a_position_of_another_ledger_is_refused(ledger: Ledger) -> None:
    play(ledger, 0, 5, step=0)
    assert ledger.holds(ledger.position)
    assert ledger.holds(LedgerPosition(0, "0" * 16))
    for wrong in (
        LedgerPosition(ledger.position.size, "f" * 16),
        LedgerPosition(10, ledger.position.checksum),
        LedgerPosition(10**6, "0" * 16),
    ):
        assert not ledger.holds(wrong)
        with pytest.raises(UsageError):
            ledger.rewind(wrong)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[LedgerPosition]]:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "ledger")
    positions = []
    for step in range(8):
        play(ledger, 5 * step, 5, step)
        positions.append(ledger.commit(step))
    ledger.close()
    return ledger.path.read_bytes(), positions


@pytest.mark.slow
def test_a_thousand_torn_or_flipped_ledgers_open_at_the_last_valid_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[bytes, list[LedgerPosition]]
) -> None:
    # The damage is done by hand, so nothing has to reach a disk.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    data, positions = written
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    rng = np.random.default_rng(0)
    for trial in range(1000):
        place = int(rng.integers(len(data)))
        if trial % 2:
            broken = data[:place]
        else:
            broken = data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]
        path = tmp_path / f"ledger-{trial}"
        path.write_bytes(broken)
        expected = max((end for end in ends if end <= place), default=0)
        with Ledger(path) as ledger:
            assert ledger.position.size == expected
            # Every commit before the damage can be resumed from, and none after it.
            assert [ledger.holds(p) for p in positions[::4]] == [p.size <= expected for p in positions[::4]]
            ledger.issue("after the damage")
        with Ledger(path) as again:
            assert again.state("after the damage") is State.ISSUED


@given(st.integers(0, 39), st.integers(0, 39), st.sampled_from(["lost", "doubled", "swapped"]))
def test_lines_that_are_lost_doubled_or_moved_end_the_valid_part(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[bytes, list[LedgerPosition]], i: int, j: int, fault: str
) -> None:
    lines = written[0].splitlines(keepends=True)
    broken = list(lines)
    if fault == "lost":
        del broken[i]
    elif fault == "doubled":
        broken.insert(i, lines[i])
        i += 1
    else:
        broken[i], broken[j] = broken[j], broken[i]
        i = min(i, j) if i != j else len(lines)
    path = tmp_path_factory.mktemp("lines") / "ledger"
    path.write_bytes(b"".join(broken))
    with Ledger(path) as ledger:
        assert ledger.position.size == len(b"".join(lines[:i]))


def test_the_ledger_knows_which_step_took_a_rollout_and_which_step_a_position_belongs_to(ledger: Ledger) -> None:
    assert ledger.step_at(ledger.position) == 0
    play(ledger, 0, 5, step=1)
    first = ledger.commit(1)
    play(ledger, 5, 5, step=2)
    assert ledger.before(lambda event: event.rollout == "r5") == first
    assert ledger.before(lambda event: event.rollout == "r10") == ledger.position
    assert [ledger.step_of(f"r{n}") for n in (0, 4, 5, 9)] == [1, 1, 2, 2]
    assert [ledger.step_of(name) for name in ("r1", "never")] == [None, None]
    assert ledger.step_at(first) == 1
    assert ledger.step_at(ledger.position) == 2
    assert ledger.step_at(LedgerPosition(first.size, "f" * 16)) is None
