"""Checkpoints are atomic, and the newest intact one is found among damaged ones (F5)."""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from palestra.durable.checkpoint import Checkpoints, FileEntry, Manifest, verify
from palestra.durable.ledger import Ledger, LedgerPosition
from palestra.errors import SchemaError, UsageError


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage is done by hand, so nothing has to reach a disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def save(store: Checkpoints, step: int, **notes: object) -> Path:
    folder = store.begin(step)
    (folder / "weights").mkdir()
    (folder / "weights" / "0.bin").write_bytes(bytes([step]) * 300)
    (folder / "generator").write_bytes(bytes([step, 1, 2, 3]))
    return store.commit(step, notes)


def test_a_checkpoint_appears_whole_with_its_manifest(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = save(store, 3, ledger=17)
    manifest = verify(path)
    assert (manifest.step, manifest.notes) == (3, {"ledger": 17})
    assert set(manifest.files) == {"weights/0.bin", "generator"}
    assert (tmp_path / "latest").read_text() == "step-00000003\n"
    assert store.newest() == (path, manifest)


def test_what_was_not_committed_is_not_a_checkpoint_and_is_cleared_away(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    (store.begin(2) / "half").write_bytes(b"x")
    found = Checkpoints(tmp_path).newest()
    assert found is not None
    assert found[1].step == 1
    save(store, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000001", "step-00000002"]


def test_the_newest_two_are_kept_and_one_is_never_enough(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for step in range(5):
        save(store, step)
    assert [path.name for path in store.paths()] == ["step-00000004", "step-00000003"]
    with pytest.raises(UsageError, match="at least 2"):
        Checkpoints(tmp_path, keep=1)


def test_a_step_that_is_saved_again_replaces_the_damaged_one(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    path = save(store, 2)
    (path / "generator").write_bytes(b"?")
    with pytest.raises(SchemaError, match="generator"):
        verify(path)
    save(store, 2)
    assert verify(path).step == 2


def test_the_caller_may_refuse_one_that_verifies(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    save(store, 2)
    found = store.newest(lambda _, manifest: manifest.step < 2)
    assert found is not None
    assert found[1].step == 1
    assert Checkpoints(tmp_path / "none").newest() is None


def damage(path: Path, rng: np.random.Generator) -> Callable[[], object]:
    """Tear the file at a random byte, flip a bit of it, or remove it. Returns what repairs it."""
    data = path.read_bytes()
    place = int(rng.integers(len(data)))
    kind = rng.integers(10)
    if kind == 0:
        path.unlink()
    elif kind < 5:
        path.write_bytes(data[:place])
    else:
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :])
    return lambda: path.write_bytes(data)


@pytest.mark.usefixtures("no_sync")
@pytest.mark.slow
def test_a_thousand_damaged_checkpoints_leave_the_last_valid_one(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=4)
    for step in range(4):
        save(store, step)
    files = {step: sorted(p for p in (tmp_path / f"step-{step:08d}").rglob("*") if p.is_file()) for step in range(4)}
    rng = np.random.default_rng(0)
    for _ in range(1000):
        hit = {int(step) for step in rng.choice(4, size=rng.integers(1, 4), replace=False)}
        repairs = [damage(files[step][rng.integers(3)], rng) for step in hit]
        found = store.newest()
        assert found is not None
        assert found[1].step == max(set(range(4)) - hit)
        for repair in repairs:
            repair()
    assert verify(tmp_path / "step-00000003").step == 3


@pytest.mark.usefixtures("no_sync")
@pytest.mark.slow
def test_a_damaged_ledger_and_damaged_checkpoints_still_agree(tmp_path: Path) -> None:
    store, path = Checkpoints(tmp_path / "checkpoints", keep=4), tmp_path / "ledger"
    with Ledger(path) as ledger:
        for step in range(4):
            names = [f"{step}-{i}" for i in range(3)]
            for name in names:
                ledger.issue(name)
                ledger.lease(name)
                ledger.finish(name)
            ledger.consume(names, step)
            save(store, step, ledger=msgspec.to_builtins(ledger.commit(step)))
    files = sorted(p for p in store.folder.rglob("*") if p.is_file() and p.name != "latest")
    rng = np.random.default_rng(1)
    resumed = set()
    for _ in range(200):
        repairs = [damage(files[rng.integers(len(files))], rng), damage(path, rng)]
        with Ledger(path) as ledger:
            found = store.newest(functools.partial(agrees, ledger))
            if found is not None:
                ledger.rewind(msgspec.convert(found[1].notes["ledger"], LedgerPosition))
                # What the ledger says was trained on is what the weights were trained on.
                assert ledger.audit().balanced
                assert ledger.audit().committed == 3 * (found[1].step + 1)
                resumed.add(found[1].step)
        for repair in repairs:
            repair()
    # The last commit is the ledger's last line, so any damage to the ledger costs at least that one.
    assert resumed == {0, 1, 2}


def agrees(ledger: Ledger, _: Path, manifest: Manifest) -> bool:
    return ledger.holds(msgspec.convert(manifest.notes["ledger"], LedgerPosition))


@pytest.mark.parametrize("name", ["/dev/zero", "../secret", "pipe"])
def test_a_manifest_cannot_make_the_reader_leave_its_folder_or_wait_for_ever(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    path = save(Checkpoints(tmp_path), 1)
    os.mkfifo(path / "pipe")
    rewrite_manifest(path, {name: FileEntry(1, hashlib.sha256(b"x").hexdigest())})
    with pytest.raises(SchemaError, match="is not the file that was written"):
        verify(path)


def test_a_checkpoint_under_the_name_of_another_step_is_none(tmp_path: Path) -> None:
    path = save(Checkpoints(tmp_path), 1)
    with pytest.raises(SchemaError, match="the manifest is that of step 1"):
        verify(path.rename(tmp_path / "step-00000009"))


def test_a_file_that_was_hashed_while_it_was_written_is_not_read_again(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    (store.begin(1) / "weights").write_bytes(b"x" * 10)
    path = store.commit(1, written={"weights": FileEntry(10, hashlib.sha256(b"x" * 10).hexdigest())})
    assert verify(path).step == 1
    (store.begin(2) / "weights").write_bytes(b"x" * 10)
    with pytest.raises(SchemaError, match="weights"):
        verify(store.commit(2, written={"weights": FileEntry(10, "0" * 64)}))


def rewrite_manifest(path: Path, files: dict[str, FileEntry]) -> None:
    """Vouch for ``files`` as a stranger would, with hashes that are right."""
    body = msgspec.json.encode(Manifest(1, files))
    (path / "manifest.json").write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def test_a_crash_while_a_name_was_written_does_not_keep_the_next_one_from_being_written(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "checkpoints", 2)
    save(store, 1)
    for pointer in ("best", "latest"):
        (store.folder / f"{pointer}.new").write_text("half a na")
    store.call_best(1)
    save(store, 2)
    assert (store.folder / "best").read_text() == "step-00000001\n"
    found = store.newest()
    assert found is not None
    assert found[1].step == 2
