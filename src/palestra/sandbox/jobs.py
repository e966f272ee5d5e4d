"""Jobs as bytes for the runner inside a box: a frame is a length and a payload, a job is a letter and its fields."""

from collections.abc import Mapping

from palestra.sandbox.contract import Program, check_relative

__all__ = ["file_fields", "job_of", "pack_fields", "pack_frame"]


def pack_frame(payload: bytes) -> bytes:
    """Return ``payload`` with its length in front."""
    return len(payload).to_bytes(4, "big") + payload


def pack_fields(*fields: bytes) -> bytes:
    """Return the fields of a job, each with its length in front."""
    return b"".join(map(pack_frame, fields))


def file_fields(files: Mapping[str, bytes]) -> bytes:
    """Return ``files`` as fields: name, content, name, content. Raise ``UsageError`` for a name outside the work folder."""
    for path in files:
        check_relative(path)
    return pack_fields(*(part for name, content in files.items() for part in (name.encode(), content)))


def job_of(program: Program, *further: bytes) -> bytes:
    """Return the job that runs ``program``; ``further`` fields stand between its input and its files."""
    kind, source = (b"P", program.code.encode(errors="replace")) if program.code is not None else (b"X", _words(program))
    return kind + pack_fields(source, program.stdin, *further) + file_fields(program.files)


def _words(program: Program) -> bytes:
    return "\0".join(program.command).encode()
