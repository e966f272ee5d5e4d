"""Frames and files inside a box: the first part of the programs that continue in ``runner.py`` or ``container_runner.py``.

``CONTROL``, which the second part defines, is the descriptor from which frames are read.
"""

import posix


def read_exactly(count):
    parts = []
    while count:
        part = posix.read(CONTROL, min(count, 2**20))
        if not part:
            posix._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame():
    return read_exactly(int.from_bytes(read_exactly(4), "big"))


def split_fields(payload):
    """Return the fields of a job: each is a four-byte length and its bytes."""
    fields, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        fields.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


def put_files(fields):
    """Write the files of a job: name, content, name, content. The host has checked the names."""
    for name, content in zip(fields[::2], fields[1::2]):
        path = name.decode()
        parent = path.rpartition("/")[0]
        made = ""
        for part in parent.split("/") if parent else []:
            made += part + "/"
            try:
                posix.mkdir(made)
            except FileExistsError:
                pass
        fd = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[posix.write(fd, view) :]
        finally:
            posix.close(fd)
