"""Writes one part of a BM25 index: which documents have each stem, and how often.

tantivy's analyzer makes the stems: it cuts a text into words, drops words of 40 bytes and more, and takes the English stem of
each in lower case. To do that for every word of every document would take most of the time. A corpus has far fewer different
words than words. So the text is cut here at each ASCII character that is no letter and no digit, and the analyzer sees each
different piece once. The stems are the same, because the analyzer cuts there too and looks at one word at a time. It cuts a
piece with other characters further.

The files of a part: ``documents.bin`` has the fields of all documents in a row, and ``fields.npy`` where each begins.
``stems.txt`` has one stem per line. ``starts.npy`` says where the entries of each stem begin. An entry is a document that has
the stem, in ``entries.npy``, and how often it has it, in ``counts.npy``. ``lengths.npy`` has the number of words of each
document.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from palestra.foundation.encoding import clean_text
from palestra.tools.search.documents import Document

__all__ = ["PartWriter"]

_END = b"\xff"
"""Ends a document. UTF-8 has no such byte."""
_DOCUMENT = 0xFFFF_FFFF
"""The bits of a key that are the document. Those above are the stem."""


def _cut(byte: int) -> int:
    """Return what stands for a byte: a space for a separator, and a small ASCII letter for a capital."""
    if byte >= 128:
        return byte
    return ord(chr(byte).lower()) if chr(byte).isalnum() else ord(" ")


_CUT = bytes(_cut(byte) for byte in range(256))


class _Pieces(dict[bytes, int]):
    """The number of each piece of text: 0 for the end of a document, 1 and more for a stem, negative for none or several stems.

    Args:
        analyze: Returns the stems of a text, as tantivy's analyzer does.
    """

    def __init__(self, analyze: Callable[[str], Sequence[str]]) -> None:
        super().__init__({_END: 0})
        self._analyze = analyze
        self.stems: dict[str, int] = {}
        """The stems and their numbers, in the order of the numbers."""
        self.several: list[list[int]] = []
        """The stems of the pieces -1, -2, and so on."""

    def __missing__(self, piece: bytes) -> int:
        stems = [self.stems.setdefault(stem, len(self.stems) + 1) for stem in self._analyze(piece.decode())]
        if len(stems) == 1:
            self[piece] = stems[0]
        else:
            self.several.append(stems)
            self[piece] = -len(self.several)
        return self[piece]


class PartWriter:
    """A part while it is written.

    Args:
        folder: The folder of the part, which must not exist.
        analyze: Returns the stems of a text, as tantivy's analyzer does.
    """

    def __init__(self, folder: Path, analyze: Callable[[str], Sequence[str]]) -> None:
        folder.mkdir()
        self._folder = folder
        self._pieces = _Pieces(analyze)
        self._documents = 0
        self._sizes: list[int] = [0]
        self._lengths: list[npt.NDArray[np.uint32]] = []
        self._keys: list[npt.NDArray[np.int64]] = []
        self._counts: list[npt.NDArray[np.uint32]] = []

    def add(self, batch: Sequence[Document], fields: Sequence[bytes]) -> None:
        """Add documents, and their fields as bytes in a row."""
        texts = [clean_text(f"{document.title}\n{document.text}").encode() for document in batch]
        pieces = (b" %b " % _END).join([*texts, b""]).translate(_CUT).split()
        numbers = np.fromiter(map(self._pieces.__getitem__, pieces), dtype=np.int64, count=len(pieces))
        keys = self._keyed(numbers)
        self._lengths.append(np.bincount((keys & _DOCUMENT) - self._documents, minlength=len(batch)).astype(np.uint32))
        keys.sort()
        first = np.flatnonzero(np.diff(keys, prepend=-1))  # the first of equal keys
        self._keys.append(keys[first])
        self._counts.append(np.diff(first, append=len(keys)).astype(np.uint32))
        with open(self._folder / "documents.bin", "ab") as file:
            file.write(b"".join(fields))
        self._sizes += map(len, fields)
        self._documents += len(batch)

    def _keyed(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return one key for each stem in a batch: its number, and the document that it stands in."""
        documents = self._documents + np.cumsum(numbers == 0)
        stems = numbers > 0
        keys: npt.NDArray[np.int64] = numbers[stems] << 32 | documents[stems]
        others = np.flatnonzero(numbers < 0)
        several = [
            stem << 32 | document
            for number, document in zip(numbers[others].tolist(), documents[others].tolist(), strict=True)
            for stem in self._pieces.several[-number - 1]
        ]
        return np.concatenate([keys, np.array(several, dtype=np.int64)])

    def finish(self) -> None:
        """Write what is left."""
        with open(self._folder / "documents.bin", "ab") as file:
            file.write(b"\n")  # no system maps an empty file into memory
        stems = self._pieces.stems
        (self._folder / "stems.txt").write_text("".join([f"{stem}\n" for stem in stems]), encoding="utf-8", newline="\n")
        keys = np.concatenate(self._keys)
        order = np.argsort(keys, kind="stable")  # it is made of sorted runs, one of each batch
        keys = keys[order]
        self._save("starts", np.searchsorted(keys, np.arange(1, len(stems) + 2, dtype=np.int64) << 32))
        self._save("entries", (keys & _DOCUMENT).astype(np.uint32))
        self._save("counts", np.concatenate(self._counts)[order])
        self._save("lengths", np.concatenate(self._lengths))
        self._save("fields", np.cumsum(np.array(self._sizes, dtype=np.int64)))

    def _save(self, name: str, array: npt.NDArray[np.generic]) -> None:
        np.save(self._folder / f"{name}.npy", array, allow_pickle=False)
