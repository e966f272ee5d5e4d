"""Root file systems: archives of three kinds, the cache by content, and archives that try to write elsewhere."""

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palestra.errors import MissingExtra, UsageError
from palestra.sandbox.roots import Root, RootCache, drafted
from palestra.sandbox.unpacking import unpack_image

Member = tuple[str, str | bytes | None]
"""A path, and its content: bytes of a file, ``-> target`` of a link, ``=> target`` of a hard link, ``None`` for a folder."""


def tar(members: list[Member], mode: int = 0o644) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as archive:
        for path, content in members:
            one = tarfile.TarInfo(path)
            one.mode = 0o755 if content is None else mode
            if content is None:
                one.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                one.type, one.linkname = (tarfile.SYMTYPE if content.startswith("->") else tarfile.LNKTYPE), content[3:]
            else:
                one.size = len(content)
            archive.addfile(one, io.BytesIO(content) if isinstance(content, bytes) else None)
    return found.getvalue()


def docker_archive(layers: list[bytes], config: dict[str, Any]) -> bytes:
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "c.json", "RepoTags": ["x:1"], "Layers": names}]
    files: list[Member] = [*zip(names, layers, strict=True)]
    return tar([*files, ("c.json", json.dumps({"config": config}).encode()), ("manifest.json", json.dumps(manifest).encode())])


def oci_archive(layers: list[bytes], config: dict[str, Any]) -> bytes:
    blobs: list[Member] = []

    def blob(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        blobs.append((f"blobs/sha256/{digest}", content))
        return {"digest": f"sha256:{digest}"}

    manifest = {"config": blob(json.dumps({"config": config}).encode()), "layers": [blob(layer) for layer in layers]}
    index = {"manifests": [blob(json.dumps(manifest).encode())]}
    return tar([*blobs, ("index.json", json.dumps(index).encode()), ("oci-layout", b"{}")])


def tree(root: Path) -> dict[str, str]:
    found = {}
    for path in sorted(root.rglob("*")):
        kind = f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text() if path.is_file() else "/"
        found[path.relative_to(root).as_posix()] = kind
    return found


LAYERS = [
    tar([("usr/lib", None), ("lib", "-> usr/lib"), ("etc/gone", b"1"), ("old", None), ("old/a", b"a"), ("keep", b"k")]),
    tar([("lib/below", b"b"), ("etc/.wh.gone", b""), ("old/.wh..wh..opq", b""), ("old/new", b"n"), ("hard", "=> keep")]),
    tar([("lib", None), ("etc/run", "-> /usr"), ("etc/run/x", b"x")]),
]
RESULT = {
    "etc": "/",
    "etc/run": "-> /usr",
    "hard": "k",
    "keep": "k",
    "lib": "-> usr/lib",
    "old": "/",
    "old/new": "n",
    "usr": "/",
    "usr/lib": "/",
    "usr/lib/below": "b",
    "usr/x": "x",
}


@pytest.mark.parametrize("kind", [docker_archive, oci_archive])
def test_layers_lie_on_top_of_each_other(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(kind(LAYERS, {"Env": ["A=1", "PATH=/x"], "WorkingDir": "/w", "Cmd": ["sh"]}))
    cache = RootCache(tmp_path / "cache")
    key = cache.add_archive("me/it:1", tmp_path / "image.tar")
    assert key == hashlib.sha256((tmp_path / "image.tar").read_bytes()).hexdigest()
    root = cache.find("me/it:1")
    assert root is not None
    assert tree(Path(root.path)) == RESULT
    assert (root.key, root.variables, root.workdir) == (key, {"A": "1", "PATH": "/x"}, "/w")
    assert cache.find("other") is None


def test_the_same_content_is_unpacked_once(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(tar([("f", b"1")]))
    cache = RootCache(tmp_path / "cache")
    keys = {cache.add_archive(name, tmp_path / f"{name}.tar") for name in ("a", "b")}
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "cache/roots").iterdir()] == list(keys)
    cache.use_host("c")
    assert cache.images() == {"a": min(keys), "b": min(keys), "c": "host"}
    assert cache.find("c") == Root("host", "", image="c")


HOSTILE: dict[str, list[Member]] = {
    "a path upwards": [("../out", b"x")],
    "a path upwards, deep": [("a/../../out", b"x")],
    "a link upwards": [("a", "-> ../.."), ("a/out", b"x")],
    "an absolute link": [("a", "-> OUTSIDE"), ("a/out", b"x")],
    "a link over a link": [("a", "-> b"), ("b", "-> OUTSIDE"), ("a/out", b"x")],
    "a file over a link": [("a", "-> OUTSIDE/out"), ("a", b"x")],
    "a folder over a link": [("a", "-> OUTSIDE"), ("a", None), ("a/out", b"x")],
    "a hard link to outside": [("a", "=> OUTSIDE/secret"), ("a", b"x")],
    "a hard link over a link": [("b", "-> OUTSIDE"), ("a", "=> b/secret")],
    "a whiteout upwards": [(".wh...", b"")],
    "an opaque link": [("a", "-> OUTSIDE"), ("a/.wh..wh..opq", b"")],
    "a whiteout over a link": [("a", "-> OUTSIDE"), ("a/.wh.secret", b"")],
    "a link through proc": [("a", "-> /proc/self/cwd"), ("a/out", b"x")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_written_outside_or_read_from_there(name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("open sesame")
    members = [
        (path, content.replace("OUTSIDE", str(outside)) if isinstance(content, str) else content)
        for path, content in HOSTILE[name]
    ]
    (tmp_path / "image.tar").write_bytes(tar(members))
    (tmp_path / "root").mkdir()
    with contextlib.suppress(UsageError):  # to refuse it is right, too
        unpack_image(tmp_path / "image.tar", tmp_path / "root")
    assert tree(outside) == {"secret": "open sesame"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tar", "outside", "root"]
    files = [path for path in (tmp_path / "root").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any("sesame" in path.read_text() for path in files)


def test_devices_and_set_user_id_are_left_out(tmp_path: Path) -> None:
    found = io.BytesIO(tar([("su", b"x")], mode=0o6755))
    with tarfile.open(fileobj=found, mode="a") as archive:
        node = tarfile.TarInfo("sda")
        node.type, node.devmajor, node.devminor = tarfile.BLKTYPE, 8, 0
        archive.addfile(node)
    (tmp_path / "image.tar").write_bytes(found.getvalue())
    (tmp_path / "root").mkdir()
    unpack_image(tmp_path / "image.tar", tmp_path / "root")
    assert stat.S_IMODE((tmp_path / "root/su").stat().st_mode) == 0o755
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["su"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=2000))
def test_what_is_no_image_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.tar").write_bytes(content)
    cache = RootCache(tmp_path / "cache")
    with contextlib.suppress(UsageError):  # some bytes are an empty archive
        cache.add_archive("x", tmp_path / "image.tar")
    assert not list((tmp_path / "cache").rglob(".draft-*"))


def _late(seconds: int) -> bytes:
    """An archive with a file of an impossible time."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w", format=tarfile.PAX_FORMAT) as archive:
        one = tarfile.TarInfo("f")
        one.mtime = seconds
        archive.addfile(one)
    return found.getvalue()


_SELF = json.dumps({"manifests": [{"digest": "sha256:0"}]}).encode()
MALFORMED = {
    "an index that names itself": tar([("index.json", _SELF), ("blobs/sha256/0", _SELF)]),
    "deep JSON": tar([("manifest.json", b"[" * 200_000)]),
    "deep folders": tar([("a/" * 1500 + "f", b"x")]),
    "a manifest of numbers": tar([("manifest.json", b"[1]")]),
    "a configuration that is a list": tar(
        [("c", b"[]"), ("manifest.json", json.dumps([{"Config": "c", "Layers": []}]).encode())]
    ),
    "a layer that is a link to itself": tar(
        [("l", "-> l"), ("c", b"{}"), ("manifest.json", json.dumps([{"Config": "c", "Layers": ["l"]}]).encode())]
    ),
    "a broken gzip": docker_archive([gzip.compress(tar([("f", os.urandom(50_000))]))[:20_000] + bytes(30_000)], {}),
    "a broken xz": docker_archive([lzma.compress(tar([("f", os.urandom(50_000))]))[:20_000] + bytes(30_000)], {}),
    "a time beyond all files": _late(10**25),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_image_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(MALFORMED[name])
    with pytest.raises(UsageError, match=r"image\.tar"):
        RootCache(tmp_path / "cache").add_archive("x", tmp_path / "image.tar")
    assert not list((tmp_path / "cache").rglob(".draft-*"))


def test_missing_things_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RootCache(tmp_path / "cache")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        cache.add_archive("x", tmp_path / "none.tar")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="apt-get install mmdebstrap"):
        cache.add_debian("x", "bookworm")
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache/images.json").write_text("{")
    with pytest.raises(UsageError, match=r"images\.json cannot be read"):
        cache.images()


def test_drafts_of_killed_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    names = (".draft-old", ".draft-locked", ".draft-young")
    for name in names:
        (tmp_path / name / "below").mkdir(parents=True)
    for name in names[:2]:
        os.utime(tmp_path / name, (0, 0))
    held = os.open(tmp_path / ".draft-locked", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with drafted(tmp_path / "made") as draft:
            os.utime(draft, (0, 0))  # as a copy of an old folder has
            with drafted(tmp_path / "other"):
                assert draft.is_dir(), "its own process works on it"
    finally:
        os.close(held)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".draft-locked", ".draft-young", "made", "other"]
