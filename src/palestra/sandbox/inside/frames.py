"""Frames and files inside a box: what the programs ``runner`` and ``container`` share."""

import posix


def read_exactly(control: int, count: int) -> bytes:
    parts = []
    while count:
        part = posix.read(control, min(count, 2**20))
        if not part:
            posix._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame(control: int) -> bytes:
    return read_exactly(control, int.from_bytes(read_exactly(control, 4), "big"))


def write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[posix.write(fd, view) :]


def split_fields(payload: bytes) -> list[bytes]:
    """Return the fields of a job: each is a four-byte length and its bytes."""
    fields, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        fields.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


def put_files(fields: list[bytes]) -> None:
    """Write the files of a job: name, content, name, content. The host has checked the names."""
    for name, content in zip(fields[::2], fields[1::2], strict=True):
        path = name.decode()
        parent = path.rpartition("/")[0]
        made = ""
        for part in parent.split("/") if parent else []:
            made += part + "/"
            try:  # noqa: SIM105 - contextlib takes a millisecond to load
                posix.mkdir(made)
            except FileExistsError:
                pass
        fd = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o644)
        try:
            write_all(fd, content)
        finally:
            posix.close(fd)
