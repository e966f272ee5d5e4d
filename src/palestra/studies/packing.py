"""The packed form of a study's results: one compressed file instead of a folder of files, for results that are committed.

``runs.json.xz`` holds one JSON object: the name of a result (``guess/ReBN-0`` for a run, ``guess/random`` for a player) → what
its file held, byte for byte. It is data and no archive, without links and modes, and only ``unpack_results`` makes paths of the
names in it. The same results give the same bytes, as long as the version of liblzma is the same.
"""

import lzma
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from palestra.durable import Inside, write_whole
from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json

__all__ = ["PACKED", "packed_path", "read_packed", "write_packed"]

PACKED = "runs.json.xz"

_NAME = re.compile(r"[\w.+=-]+/[\w.+=-]+")
_LARGEST = 256 * 2**20
"""The most bytes that a file is unpacked to. The largest of the studies in ``docs/results`` is unpacked to 1.5 MB."""
_MEMORY = 64 * 2**20
"""The most memory that unpacking may ask for; what ``write_packed`` writes asks for 9 MB."""


def packed_path(folder: Path) -> Inside:
    """The packed file of the study in ``folder``."""
    return Inside(folder) / PACKED


def read_packed(folder: Path) -> dict[str, bytes]:
    """Return the packed results of the study in ``folder`` by name; none if there is no packed file.

    Raises:
        UsageError: The file is damaged, too large, or not of this format.
    """
    path = packed_path(folder)
    if not path.exists():
        return {}
    try:
        results = decode_json(_decompressed(path.read_bytes()), dict[str, msgspec.Raw])
    except (SchemaError, ValueError, EOFError, lzma.LZMAError) as error:
        raise UsageError(f"{path} does not hold packed results: {error}. Replace it by an undamaged copy.") from None
    for name in results:
        if not _NAME.fullmatch(name) or {".", ".."}.intersection(name.split("/")):
            raise UsageError(f"{path} does not hold packed results: {name!r} is not the name of a run, such as guess/ReBN-0")
    return {name: bytes(content) for name, content in results.items()}


def write_packed(folder: Path, results: Mapping[str, bytes]) -> None:
    """Replace the packed file of the study in ``folder``. Every value of ``results`` is one line of JSON."""
    lines = [msgspec.json.encode(name) + b":" + results[name].strip() for name in sorted(results)]
    packed = lzma.compress(b"{" + b",\n".join(lines) + b"}\n", preset=6 | lzma.PRESET_EXTREME)
    write_whole(packed_path(folder), packed)


def _decompressed(packed: bytes) -> bytes:
    """Return the only stream in ``packed``. Nothing larger than ``_LARGEST`` is held."""
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    data = unpacker.decompress(packed, max_length=_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST:,} bytes when it is unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut off, or something follows its end")
    return data
