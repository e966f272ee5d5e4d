"""The program that runs inside a container.

It has three streams and no socket. Frames arrive on standard input. Its own answers go to standard output behind a random mark
that only the host knows. A program that forges the mark can only falsify the result of its own job.

"""

import builtins
import os
import sys

from palestra.sandbox.inside.frames import put_files, read_frame, split_fields, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CONTROL = 0


def fetched(path: bytes) -> bytes:
    """Return a regular file's content behind a 1, or a 0. No part of the path may be a link."""
    import stat

    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    *parents, name = path.split(b"/")
    try:
        for parent in parents:
            deeper = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = deeper
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(fd, "rb") as file:
            return b"1" + file.read(2**24) if stat.S_ISREG(os.fstat(fd).st_mode) else b"0"
    except OSError:
        return b"0"
    finally:
        os.close(folder)


class ChildProgram:
    """The job of this container. ``mark`` stands before each of its own answers on standard output."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        module = sys.modules["__main__"] = type(sys)("__main__")
        self.names = vars(module)

    def say(self, content: bytes) -> None:
        """Write an answer of the runner, apart from the program's output."""
        write_all(1, self.mark + len(content).to_bytes(4, "big") + content)

    def run_once(self, kind: bytes, parts: list[bytes]) -> None:
        """Run code or a program in a process of its own, and say how it ended."""
        source, stdin, wanted, *files = parts
        put_files(files)
        pid = os.fork()
        if not pid:
            reading, writing = os.pipe()
            if not os.fork():  # this process writes the input at the program's pace
                write_all(writing, stdin)
                os._exit(0)
            os.close(writing)
            os.dup2(reading, 0)
            become(kind, source, self.names)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        outside = [fetched(path) for path in wanted.split(b"\0") if path]
        self.say((code & 0xFF).to_bytes(1, "big") + b"".join(len(item).to_bytes(4, "big") + item for item in outside))

    def run_session(self, parts: list[bytes]) -> "NoReturn":
        """Answer cells and requests for files until the host closes the stream."""
        put_files(parts)
        while True:
            asked = read_frame(CONTROL)
            if asked[:1] == b"f":
                put_files(split_fields(asked[1:]))
                answer = b"1"
            elif asked[:1] == b"g":
                answer = fetched(asked[1:])
            else:
                answer = run_cell(asked[1:], self.names)
            sys.stdout.flush()
            sys.stderr.flush()
            self.say(answer)


def show(error: BaseException) -> None:
    trace = error.__traceback__
    sys.excepthook(type(error), error, trace.tb_next if trace is not None else None)


def become(kind: bytes, source: bytes, names: "dict[str, Any]") -> "NoReturn":
    if kind == b"X":
        words = source.decode().split("\0")
        try:
            os.execvp(words[0], words)  # noqa: S606 - it becomes the program
        except OSError:
            sys.stderr.write(f"no program {words[0]!r} in the box\n")
            sys.stderr.flush()
            os._exit(127)
    try:
        exec(compile(source, "<code>", "exec", 0, True), names)  # noqa: S102 - the purpose of a container
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        show(error)
        sys.exit(1)
    sys.exit(0)


def run_cell(source: bytes, names: "dict[str, Any]") -> bytes:
    import ast

    try:
        tree = ast.parse(source, "<cell>")
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            del tree.body[-1]
        exec(compile(tree, "<cell>", "exec", 0, True), names)  # noqa: S102 - the purpose of a container
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval", 0, True), names)  # noqa: S307 - as above
            if value is not None:
                print(repr(value))
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        show(error)
        return b"0"
    return b"1"


def main(ready: bytes, mark: bytes) -> None:
    """Say that the container is ready, wait for the job and do it."""
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    program = ChildProgram(mark)
    sys.path[0] = os.getcwd()
    os.write(1, ready)
    job = read_frame(CONTROL)
    if job[:1] == b"S":
        program.run_session(split_fields(job[1:]))
    program.run_once(job[:1], split_fields(job[1:]))
    os._exit(0)
