"""Append-only files: after a torn last line the complete ones stay, and the next one is complete."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.durable import Inside, LineWriter, keep_lines, read_lines
from palestra.errors import SchemaError

LINES = st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")), max_size=8)


@settings(deadline=None)
@given(lines=LINES, cut=st.integers(0, 300), tail=st.sampled_from([0, 70_000, 140_000]))
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path_factory, lines: list[bytes], cut: int, tail: int) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("lines") / "deep" / "file"
    with LineWriter(path) as writer:
        for line in lines:
            writer.write(line)
    path.write_bytes(path.read_bytes()[:cut] + b"x" * tail)
    whole = path.read_bytes().count(b"\n")
    assert list(read_lines(path)) == [line + b"\n" for line in lines[:whole]]
    with LineWriter(path) as writer:
        writer.write(b"next")
    assert list(read_lines(path)) == [*(line + b"\n" for line in lines[:whole]), b"next\n"]


def test_lines_from_the_first_unwanted_one_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert keep_lines(Inside(tmp_path) / "file", lambda _: True) == ""
    assert not path.exists()
    path.write_bytes(b"1\n2\n9\n3\ntorn")
    assert keep_lines(Inside(tmp_path) / "file", lambda line: int(line) < 5) == ""
    assert path.read_bytes() == b"1\n2\n"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_damaged_line_is_left_out_and_the_file_as_it_was_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def wanted(line: bytes) -> bool:
        if line.startswith(b"?"):
            raise SchemaError("not a number")
        return int(line) < 5

    for k in range(2):
        path.write_bytes(b"1\n?\n3\n9\n4\n")
        assert keep_lines(Inside(tmp_path) / "file", wanted) == f"file.aside-000{k}"
        assert path.read_bytes() == b"1\n3\n"
        assert (tmp_path / f"file.aside-000{k}").read_bytes() == b"1\n?\n3\n9\n4\n"


FULL = """
import resource, sys
from pathlib import Path
from palestra.durable import LineWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (1010, 1010))  # a file that cannot grow: the last write is short, the next one fails
writer = LineWriter(Path(sys.argv[1]))
try:
    for number in range(100):
        writer.write(b"%03d " % number * 6)
except OSError as error:
    sys.exit(f"{number} {error.strerror} {Path(error.filename).name}")
"""


def test_a_full_disk_raises_and_keeps_every_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], check=False, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stderr.strip() == "40 File too large file"
    assert path.stat().st_size == 1010
    assert [line[:3] for line in read_lines(path)] == [b"%03d" % number for number in range(40)]
    with LineWriter(path) as writer:
        writer.write(b"next")
    assert list(read_lines(path))[39:] == [b"039 " * 6 + b"\n", b"next\n"]
