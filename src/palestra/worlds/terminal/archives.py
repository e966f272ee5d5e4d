"""Recover files from archives: plain, nested and mislabeled, or split and encoded."""

import base64
import gzip
import io
import lzma
import tarfile
import zipfile
from itertools import pairwise

import numpy as np

from palestra.sandbox.layers import NewFile
from palestra.worlds.terminal.grading import Lines
from palestra.worlds.terminal.scene import HOME, Scene, draw, sample
from palestra.worlds.terminal.texts import WORDS

__all__ = ["archives"]

_TIME = 1_704_067_200


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), _TIME, 0o644
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=_TIME)


def _papers(rng: np.random.Generator, count: int) -> dict[str, bytes]:
    names = sample(rng, WORDS, count)
    return {f"{name}.txt": " ".join(sample(rng, WORDS, 12)).encode() + b"\n" for name in names}


def archives(rng: np.random.Generator, level: int) -> Scene:
    """Take a file out of an archive of one kind; of nested ones without endings; of one in pieces. There are many others."""
    papers = _papers(rng, int(rng.integers(28, 40)))
    wanted = draw(rng, sorted(papers))
    content = papers[wanted].decode()
    goal = f"Recover the file {wanted} and write its content, unchanged, to answer.txt in your home folder. "
    return (_plain, _nested, _split)[level](rng, papers, goal, wanted, content)


def _scene(goal: str, files: list[NewFile], wanted: str, content: str, solve: str) -> Scene:
    return Scene(goal, files, [Lines("answer.txt", [content.rstrip()])], [solve])


def _plain(rng: np.random.Generator, papers: dict[str, bytes], goal: str, wanted: str, content: str) -> Scene:
    kind = draw(rng, ("tar.gz", "tar.xz", "zip"))
    inside = {f"papers/{name}": text for name, text in papers.items()}
    made = _zip(inside) if kind == "zip" else _gzip(_tar(inside)) if kind == "tar.gz" else lzma.compress(_tar(inside))
    if kind == "zip":
        solve = f"python3 -m zipfile -e backup.zip out && cp out/papers/{wanted} answer.txt"
    else:
        solve = f"tar xf backup.{kind} papers/{wanted} && cp papers/{wanted} answer.txt"
    goal += f"It is in backup.{kind}. (Python's zipfile module is available.)"
    return _scene(goal, [NewFile(f"{HOME}/backup.{kind}", made)], wanted, content, solve)


_UNPACK = r"""
python3 - <<'END'
import gzip, io, lzma, tarfile, zipfile
def inner(data):
    if data[:2] == b'\x1f\x8b': return {'x': gzip.decompress(data)}
    if data[:6] == b'\xfd7zXZ\x00': return {'x': lzma.decompress(data)}
    if data[:4] == b'PK\x03\x04':
        z = zipfile.ZipFile(io.BytesIO(data)); return {n: z.read(n) for n in z.namelist()}
    if data[257:262] == b'ustar':
        t = tarfile.open(fileobj=io.BytesIO(data)); return {m.name: t.extractfile(m).read() for m in t}
    return {}
def search(name, data):
    if name.endswith('WANTED'): open('answer.txt', 'wb').write(data)
    for n, d in inner(data).items(): search(n, d)
search('', open('SOURCE', 'rb').read())
END
""".strip()


def _unpack(source: str, wanted: str) -> str:
    return _UNPACK.replace("WANTED", wanted).replace("SOURCE", source)


def _nested(rng: np.random.Generator, papers: dict[str, bytes], goal: str, wanted: str, content: str) -> Scene:
    data, name = _tar(papers), "papers"
    for number in range(int(rng.integers(2, 5))):
        kind = draw(rng, ("gzip", "xz", "zip", "tar"))
        other = {f"{draw(rng, WORDS)}{number}": b"nothing here\n", name: data}
        data = (
            _gzip(data)
            if kind == "gzip"
            else lzma.compress(data)
            if kind == "xz"
            else _zip(other)
            if kind == "zip"
            else _tar(other)
        )
        name = draw(rng, ("old.jpg", "data.bin", "notes", "backup.dat"))
    goal += "It is somewhere in the file recovered.dat: archives in archives (tar, gzip, xz, zip), without the right endings."
    return _scene(goal, [NewFile(f"{HOME}/recovered.dat", data)], wanted, content, _unpack("recovered.dat", wanted))


def _split(rng: np.random.Generator, papers: dict[str, bytes], goal: str, wanted: str, content: str) -> Scene:
    data = base64.encodebytes(_zip({"inner.tar.gz": _gzip(_tar(papers)), "readme": b"one of two\n"}))
    count = int(rng.integers(3, 6))
    cuts = [len(data) * number // count for number in range(count + 1)]
    pieces = [data[start:end] for start, end in pairwise(cuts)]
    names = sample(rng, WORDS, count)
    listed = "".join(f"{number + 1}. {name}\n" for number, name in enumerate(names)).encode()
    files = [NewFile(f"{HOME}/pieces/{name}.part", piece) for name, piece in zip(names, pieces, strict=True)]
    files += [NewFile(f"{HOME}/pieces/{draw(rng, WORDS)}.bad", b"AAAA\n"), NewFile(f"{HOME}/pieces/ORDER", listed)]
    goal += (
        "A zip file with a tar.gz in it was encoded as base64 and cut into the pieces/*.part; pieces/ORDER names their order."
    )
    parts = " ".join(f"pieces/{name}.part" for name in names)
    return _scene(goal, files, wanted, content, f"cat {parts} | base64 -d > whole.zip\n{_unpack('whole.zip', wanted)}")
