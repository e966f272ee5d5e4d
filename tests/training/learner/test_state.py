"""A learner's state on the disk: what any number of ranks saved is joined, and what is not such a state is refused."""

import hashlib
import json
import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.training.learner.together import in_threads
from tests.training.tiny import learner_of, random_batch, tiny_network

from palestra.durable.checkpoint import FileEntry
from palestra.errors import SchemaError
from palestra.training.learner import state, weights
from palestra.training.learner.state import GENERATOR, StateReader, TensorRows, write_state

pytestmark = pytest.mark.torch

WHOLE = torch.arange(10, dtype=torch.float32).view(5, 2)


def save(folder: Path, cuts: tuple[int, ...] = (0, 5), **more: TensorRows) -> None:
    """Save ``WHOLE`` and a number as ranks do that have the rows between ``cuts``."""
    for rank, (start, stop) in enumerate(pairwise(cuts)):
        held = {
            "sharded": TensorRows(WHOLE[start:stop], start, (5, 2), True),
            "single": TensorRows(torch.tensor(3.0), 0, (), False),
            GENERATOR: TensorRows(torch.tensor([rank], dtype=torch.uint8), 0, (1,), False),
            **more,
        }
        write_state(folder, rank, len(cuts) - 1, 7, held)


@pytest.mark.parametrize("cuts", [(0, 5), (0, 2, 5), (0, 1, 1, 4, 5)])
@pytest.mark.parametrize("taken", [(0, 5), (1, 4), (3, 3)])
def test_rows_that_any_number_of_ranks_saved_are_joined(cuts: tuple[int, ...], taken: tuple[int, int], tmp_path: Path) -> None:
    save(tmp_path, cuts)
    reader = StateReader(tmp_path)
    assert (reader.updates, reader.names()) == (7, {"sharded", "single", GENERATOR})
    assert len(reader.files) == len(cuts) - 1
    for name, entry in reader.files.items():
        data = (tmp_path / name).read_bytes()
        assert entry == FileEntry(len(data), hashlib.sha256(data).hexdigest())
    assert [sorted(load_file(tmp_path / name)) for name in list(reader.files)[1:]] == [[GENERATOR, "sharded"]] * (len(cuts) - 2)
    start, stop = taken
    into, number = torch.zeros(stop - start, 2), torch.tensor(0.0)
    reader.fill("sharded", TensorRows(into, start, (5, 2), True))
    reader.fill("single", TensorRows(number, 0, (), False))
    assert torch.equal(into, WHOLE[start:stop])
    assert number == 3.0
    generators = [reader.own(GENERATOR, rank) for rank in range(len(cuts))]
    assert [None if own is None else own.tolist() for own in generators] == [*([rank] for rank in range(len(cuts) - 1)), None]
    assert reader.own("unknown", 0) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_a_file_of_any_type_and_size_is_one_that_safetensors_reads(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_CHUNK", 16)
    tensor = torch.arange(24).to(dtype).view(4, 6)
    save(tmp_path, more=TensorRows(tensor.T, 0, (6, 4), False))
    path = tmp_path / "learner-00000.safetensors"
    found = load_file(path)
    assert torch.equal(found["more"], tensor.T)
    assert found["more"].dtype == dtype
    assert torch.equal(found["sharded"], WHOLE)
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0, "the tensors are aligned"


def test_what_is_saved_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced[path.name] = path.stat().st_size
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    save(tmp_path)
    path = tmp_path / "learner-00000.safetensors"
    assert synced[path.name] == path.stat().st_size
    assert any(".json" in name for name in synced)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("learner-00001.safetensors", Path.unlink),
        ("learner-00001.safetensors", cut),
        ("learner-00001.safetensors", lambda path: path.write_bytes(b"")),
        ("learner-00001.json", Path.unlink),
        ("learner-00001.json", cut),
        ("learner-00000.json", lambda path: path.write_text('{"updates": "many"}')),
    ],
)
def test_a_damaged_state_is_refused_with_the_name_of_its_file(file: str, damage: Any, tmp_path: Path) -> None:
    save(tmp_path, (0, 2, 5))
    damage(tmp_path / file)
    with pytest.raises(SchemaError, match=rf"{file} cannot be read"):
        StateReader(tmp_path).fill("sharded", TensorRows(torch.zeros(5, 2), 0, (5, 2), True))


def test_other_shapes_and_missing_rows_are_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path, (0, 2, 5))
    reader = StateReader(tmp_path)
    with pytest.raises(SchemaError, match=r"sharded has shape \[5, 2\] in the checkpoint and \[6, 2\] here"):
        reader.fill("sharded", TensorRows(torch.zeros(6, 2), 0, (6, 2), True))
    for into in (torch.zeros(1, 2), torch.tensor(0.0)):
        with pytest.raises(SchemaError, match="unknown is incomplete"):
            reader.fill("unknown", TensorRows(into, 0, tuple(into.shape), True))
    description = tmp_path / "learner-00001.json"
    told = json.loads(description.read_text())
    told["tensors"].pop("sharded")
    description.write_text(json.dumps(told))
    with pytest.raises(SchemaError, match="sharded is incomplete"):
        StateReader(tmp_path).fill("sharded", TensorRows(torch.zeros(5, 2), 0, (5, 2), True))


def test_the_state_of_another_network_is_refused_by_name(tmp_path: Path) -> None:
    learner_of(network=tiny_network(critic=True)).save(tmp_path)
    with pytest.raises(SchemaError, match=r"another network: the two differ in model\.critic\.bias, model\.critic\.weight$"):
        learner_of(network=tiny_network(critic=False)).load(tmp_path)


# ------------------------------------------------------------------------------------------------------- weights for servers


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_divide_the_files_of_the_weights_and_rank_0_writes_the_index_of_all(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = [tiny_network(critic=False) for _ in range(ranks)]
    largest = max(parameter.numel() for parameter in networks[0].parameters())
    monkeypatch.setattr(weights, "_FILE_BYTES", 2 * largest)  # half of the largest tensor in float32

    indexed, late = threading.Event(), set(range(1, ranks))

    def save_late(tensors: dict[str, torch.Tensor], path: Path, **options: Any) -> None:
        """All ranks but the first begin when the index is there, or would be if nothing held it back."""
        rank = int(path.name.split("-")[1])
        if rank in late:
            late.remove(rank)
            indexed.wait(0.2)
        save_file(tensors, path, **options)

    def index(folder: Path) -> None:
        weights.index_weights(folder)
        indexed.set()

    monkeypatch.setattr(weights, "save_file", save_late)
    monkeypatch.setattr("palestra.training.learner.learner.index_weights", index)
    in_threads(ranks, lambda rank: learner_of(network=networks[rank]).write_weights(tmp_path, "bfloat16"), monkeypatch)
    files = {path.name: load_file(path) for path in tmp_path.glob("*.safetensors")}
    assert {name.split("-")[1] for name in files} == {f"{rank:05d}" for rank in range(ranks)}
    listed = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert listed["weight_map"] == {tensor: name for name, held in files.items() for tensor in held}
    assert listed["metadata"]["total_size"] == sum((tmp_path / name).stat().st_size for name in files)
    expected = dict(learner_of(network=tiny_network(critic=False)).checkpoint_weights("bfloat16"))
    assert listed["weight_map"].keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for held in files.values() for name, tensor in held.items())
    assert any(len(held) > 1 for held in files.values())
    assert len(files) > ranks


def test_ranks_meet_after_what_they_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank goes on before all files are there."""
    networks = [tiny_network(critic=False) for _ in range(2)]
    read = threading.Event()

    def write_late(folder: Path, rank: int, *state_of_rank: Any) -> None:
        if rank:
            read.wait(0.2)
        write_state(folder, rank, *state_of_rank)

    def reader(folder: Path) -> StateReader:
        read.set()
        return StateReader(folder)

    monkeypatch.setattr("palestra.training.learner.learner.write_state", write_late)
    monkeypatch.setattr("palestra.training.learner.learner.StateReader", reader)

    def save_and_load(rank: int) -> tuple[int, bool, int]:
        learner = learner_of(network=networks[rank])
        learner.measure(random_batch())
        learner.updates = 3
        entries = learner.save(tmp_path)
        complete = len(list(tmp_path.glob("learner-*"))) == 4
        learner.updates = 0
        learner.load(tmp_path)
        return len(entries), complete, learner.updates

    assert in_threads(2, save_and_load, monkeypatch) == [(2, True, 3), (0, True, 3)]
