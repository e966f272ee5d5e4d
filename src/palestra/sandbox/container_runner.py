"""The program that runs inside a container.

It has three streams and no socket. Frames arrive on standard input. Its own answers go to standard output behind a random mark
that only the host knows. A program that forges the mark can only falsify the result of its own job.

The host puts ``runner_frames.py`` in front of it, and before that a line that defines ``READY`` and ``MARK``.
"""

import os
import sys

CONTROL = 0


def fetched(path):
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


def say(content):
    """Write an answer of the runner, apart from the program's output."""
    view = memoryview(MARK + len(content).to_bytes(4, "big") + content)
    while view:
        view = view[os.write(1, view) :]


def show(error):
    sys.excepthook(type(error), error, error.__traceback__.tb_next)


def run_once(kind, parts):
    source, stdin, wanted, *files = parts
    put_files(files)
    pid = os.fork()
    if not pid:
        reading, writing = os.pipe()
        if not os.fork():  # this process writes the input at the program's pace
            view = memoryview(stdin)
            while view:
                view = view[os.write(writing, view) :]
            os._exit(0)
        os.close(writing)
        os.dup2(reading, 0)
        become(kind, source)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    outside = [fetched(path) for path in wanted.split(b"\0") if path]
    say((code & 0xFF).to_bytes(1, "big") + b"".join(len(item).to_bytes(4, "big") + item for item in outside))


def become(kind, source):
    if kind == b"X":
        words = source.decode().split("\0")
        try:
            os.execvp(words[0], words)
        except OSError:
            sys.stderr.write("no program %r in the box\n" % words[0])
            sys.stderr.flush()
            os._exit(127)
    try:
        exec(compile(source, "<code>", "exec", 0, True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        show(error)
        sys.exit(1)
    sys.exit(0)


def run_cell(source):
    import ast

    try:
        tree = ast.parse(source, "<cell>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<cell>", "exec", 0, True), main.__dict__)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval", 0, True), main.__dict__)
            if value is not None:
                print(repr(value))
    except BaseException as error:
        show(error)
        return b"0"
    return b"1"


def session(parts):
    put_files(parts)
    while True:
        asked = read_frame()
        if asked[:1] == b"f":
            put_files(split_fields(asked[1:]))
            answer = b"1"
        elif asked[:1] == b"g":
            answer = fetched(asked[1:])
        else:
            answer = run_cell(asked[1:])
        sys.stdout.flush()
        sys.stderr.flush()
        say(answer)


import builtins  # noqa: E402

builtins.exit = builtins.quit = sys.exit
main = type(sys)("__main__")
sys.modules["__main__"] = main
sys.path[0] = os.getcwd()
os.write(1, READY)
job = read_frame()
if job[:1] == b"S":
    session(split_fields(job[1:]))
else:
    run_once(job[:1], split_fields(job[1:]))
    os._exit(0)
