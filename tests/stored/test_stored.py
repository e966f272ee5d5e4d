"""Files that an earlier version wrote are read for ever after: see README.md beside this file."""

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palestra.durable.checkpoint import Checkpoints
from palestra.durable.ledger import Ledger, LedgerPosition, State, read_ledger
from palestra.rollouts import read_trajectories
from palestra.serve import wire
from palestra.trajectory import Image, Trajectory

SCHEMA_1 = Path(__file__).parent / "schema1"
DIGEST = "0a2b543aa0d24079f39a1bc3da0aceedcfb40543237fdcdabb17206ea1e162d6"
"""Of all files of schema 1. If this test fails, put the files back; do not change the digest."""


def test_nobody_rewrites_the_stored_files() -> None:
    digest = hashlib.sha256()
    for file in sorted(path for path in SCHEMA_1.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(SCHEMA_1)).encode() + b"\0" + file.read_bytes())
    assert digest.hexdigest() == DIGEST


@pytest.fixture(scope="module")
def episodes() -> list[Trajectory]:
    return list(read_trajectories(SCHEMA_1 / "trajectories.jsonl"))


def test_trajectories_of_schema_1(episodes: list[Trajectory]) -> None:
    solved, again, failed, sampled, agent, pictured = episodes
    assert [one.schema for one in episodes] == [1] * 6
    assert (solved.reward, solved.policy, solved.privileged, solved.seconds) == (1.0, "oracle", True, 0.25)
    assert solved.task.env == again.task.env == "game:GuessTheNumber-v0-easy"
    assert solved.turns[-1].completion.text.startswith("\\boxed{")
    assert (failed.reward, failed.failures[-1].message) == (None, "no answer")
    assert failed.stop.failed
    assert agent.agent is not None
    content = pictured.turns[0].observation
    assert isinstance(content, tuple)
    assert content[1] == Image(b"\x89PNG\r\n", "image/png")
    assert sampled.policy == "tiny"


def test_tokens_of_schema_1_are_in_their_segments(episodes: list[Trajectory]) -> None:
    sampled = episodes[3]
    segment = sampled.segments[0]
    assert len(segment.ids) == len(segment.mask)
    assert int(np.count_nonzero(segment.mask)) == len(segment.logprobs) == 10
    assert all(-5.0 < float(one) < 0.0 for one in segment.logprobs)


def test_calls_of_agents_of_schema_1(episodes: list[Trajectory]) -> None:
    record = episodes[4].agent
    assert record
    assert [(call.dialect, call.role, call.parent) for call in record.calls] == [
        ("chat", "agent", None), ("anthropic", "auxiliary", 0),
    ]  # fmt: skip
    assert record.calls[0].tools == ("look",)
    assert record.branches[0].role == "discarded"
    assert (record.overridden, record.ignored) == ({"temperature": 1}, {"logit_bias": 2})


def test_a_ledger_of_schema_1_is_read_and_continued(tmp_path: Path) -> None:
    books = read_ledger(SCHEMA_1 / "ledger.jsonl").audit()
    assert (books.issued, books.committed, books.failed, books.dropped, books.open) == (4, 2, 1, 1, 0)
    copy = tmp_path / "ledger.jsonl"
    shutil.copy(SCHEMA_1 / "ledger.jsonl", copy)
    with Ledger(copy) as ledger:
        assert ledger.state("r0") is State.COMMITTED
        ledger.issue("r4", "more")
    assert read_ledger(copy).audit().issued == 5


def test_a_checkpoint_of_schema_1_verifies_and_names_its_place_in_the_ledger() -> None:
    found = Checkpoints(SCHEMA_1 / "checkpoints").newest()
    assert found is not None
    _, manifest = found
    assert (manifest.step, set(manifest.files)) == (1, {"optimizer.json", "weights/part-0.bin"})
    position = LedgerPosition(**manifest.notes["ledger"])
    assert position.size == (SCHEMA_1 / "ledger.jsonl").stat().st_size


@pytest.mark.parametrize(
    "frame", json.loads((SCHEMA_1 / "frames.json").read_bytes()), ids=lambda frame: str(frame["json"])[:40]
)
def test_frames_of_protocol_1(frame: dict[str, str]) -> None:
    kind: Any = wire.FromClient if frame["from"] == "client" else wire.FromServer
    packed = base64.b64decode(frame["msgpack"])
    read = wire.decode_frame(packed, kind)
    assert read == wire.decode_json_frame(frame["json"].encode(), kind)
    assert wire.encode_frame(read) == packed  # an older peer understands what we send


def test_today_writes_protocol_1() -> None:
    assert wire.PROTOCOL_VERSION == 1
