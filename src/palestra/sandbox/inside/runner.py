"""The program that runs inside a box. It is sent as compiled code and imports only modules that load in microseconds.

A box is started ahead
and waits here for its only job. File descriptor 3 is a socket to the host. A frame is a four-byte length and a payload; the
payload's first byte is its kind. This code is trusted until the job begins. After that the host treats every frame as hostile,
because model-written code may share this process.

Kinds of job: ``P`` run Python once and end; ``X`` become another program; ``S`` an interpreter that answers cells until the
host closes the socket; ``F`` and ``I`` judge a candidate, one forked process per test (``F`` calls a function, ``I`` runs a
program on an input); ``T`` run trusted test code against a candidate in another box. Expected values never enter this box.
"""

import builtins
import posix
import sys

from palestra.sandbox.inside.frames import put_files, read_frame, split_fields, write_all
from palestra.sandbox.inside.values import described, encoded, encoded_call, exception_from, read_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any, NoReturn

CONTROL = 3
VALUE_LIMIT = 2**22
OUTPUT_LIMIT = 2**24


class Surroundings:
    """What the host says about this box."""

    boxed: bool
    processes: int
    open_files: int
    cpu_seconds: int
    paths: list[str]
    """Folders of packages, for the search path."""
    environment: dict[str, str]


BOX = Surroundings()


def send_frame(payload: bytes) -> None:
    write_all(CONTROL, len(payload).to_bytes(4, "big") + payload)


# ------------------------------------------------------------------------------------------------------------- one program


def fresh_main(name: str = "__main__") -> "dict[str, Any]":
    module = type(sys)(name)
    vars(module)["__builtins__"] = vars(builtins)
    sys.modules[name] = module
    return module.__dict__


def hidden_file(content: bytes = b"") -> int:
    """Return an unlinked file, for input of any size or for output that is read after its writer has ended."""
    fd = posix.open("/box/tmp" if BOX.boxed else ".", posix.O_TMPFILE | posix.O_RDWR, 0o600)
    write_all(fd, content)
    posix.lseek(fd, 0, 0)
    return fd


def become_input(content: bytes) -> None:
    fd = hidden_file(content)
    posix.dup2(fd, 0)
    posix.close(fd)


def show_exception(error: BaseException, frames: int) -> None:
    """Print ``error`` as the interpreter does, without the outermost ``frames``, which belong to this program."""
    trace = error.__traceback__
    for _ in range(frames):
        trace = trace.tb_next if trace is not None else None
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def run_python(fields: list[bytes]) -> "NoReturn":
    code, stdin, *files = fields
    put_files(files)
    become_input(stdin)
    posix.close(CONTROL)
    status = 0
    try:
        exec(compile(code, "<code>", "exec", 0, True), fresh_main())  # noqa: S102 - the purpose of a box
    except SystemExit as error:
        status = exit_status(error)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        show_exception(error, 1)
        status = 1
    finish()
    posix._exit(status)


def exit_status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def finish() -> None:
    """Do what programs expect at the end of an interpreter: wait for threads, run exit functions, flush."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def run_command(fields: list[bytes]) -> None:
    arguments, stdin, *files = fields
    put_files(files)
    become_input(stdin)
    words = arguments.split(b"\0")
    for folder in (b"/usr/bin/", b"/usr/local/bin/", b"/usr/sbin/") if b"/" not in words[0] else (b"",):
        try:
            posix.execve(folder + words[0], words, BOX.environment)
        except FileNotFoundError:
            continue
    sys.stderr.write(f"no program {words[0].decode()!r} in the box\n")
    sys.exit(127)


# ---------------------------------------------------------------------------------------------------------------- a session


def run_cell(source: bytes, namespace: "dict[str, Any]") -> bool:
    """Run ``source`` and print the value of a last expression. Return true if nothing was raised."""
    import _ast

    try:
        tree: Any = compile(source, "<cell>", "exec", _ast.PyCF_ONLY_AST, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        exec(compile(tree, "<cell>", "exec", 0, True), namespace)  # noqa: S102 - the purpose of a box
        if last is not None:
            shown = compile(_ast.Expression(last.value), "<cell>", "eval", 0, True)
            value = eval(shown, namespace)  # noqa: S307 - as above
            if value is not None:
                namespace["_"] = value
                print(repr(value))
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        show_exception(error, 1)
        return False
    return True


def run_session(fields: list[bytes]) -> "NoReturn":
    put_files(fields)
    namespace = fresh_main()
    while True:
        frame = read_frame(CONTROL)
        if frame[:1] == b"f":
            try:
                put_files(split_fields(frame[1:]))
                send_frame(b"1")
            except OSError as error:
                send_frame(b"0" + str(error).encode())
            continue
        good = run_cell(frame[1:], namespace)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001 - the cell may have put anything there
                good = False
        send_frame(b"1" if good else b"0")


# ------------------------------------------------------------------------------------------------------------ the judged


def compiled(source: bytes, name: str) -> "CodeType":
    """Compile what was text on the host: a line ``# coding: latin-1`` does not change how its bytes are read."""
    return compile(source.decode().removeprefix("\ufeff"), name, "exec", 0, True)


def run_tests(
    fields: list[bytes], one_test: "Callable[[CodeType | BaseException, str, bytes, int], None]", limit: int
) -> "NoReturn":
    """Answer each test frame with the result of a fresh fork of this process."""
    source, entry = fields[0], fields[1].decode()
    program: CodeType | BaseException
    try:
        program = compiled(source, "<candidate>")
    except BaseException as error:  # noqa: BLE001 - each test reports it
        program = error
    while True:
        given = read_frame(CONTROL)
        result = hidden_file()
        pid = posix.fork()
        if not pid:
            try:
                posix.close(CONTROL)
                one_test(program, entry, given, result)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
                posix.ftruncate(result, 0)
                posix.pwrite(result, b"X" + f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace"), 0)
            finally:
                posix._exit(0)
        _, status = posix.waitpid(pid, 0)
        if posix.WIFSIGNALED(status):  # it may have been stopped by a limit after it printed the right thing
            answer = f"Xended by signal {posix.WTERMSIG(status)}".encode()
        elif posix.fstat(result).st_size > limit:  # part of an answer is not the answer
            answer = f"Xthe answer is too large: it has more than {limit >> 20} MiB".encode()
        else:
            answer = posix.pread(result, limit, 0)
        posix.close(result)
        send_frame(answer or b"N")


def call_function(program: "CodeType | BaseException", entry: str, given: bytes, result: int) -> None:
    """Write the return value of ``entry``. The arguments are evaluated first, before any code of the candidate runs.

    The candidate's module is not called ``__main__``, so its code for running as a program does not run. For tests in another
    box (``relayed``) this also reports an exception, and the arguments after a call that returned nothing. What is no
    ``Exception``, and a ``MemoryError``, which the box's limits cause, ends the test: no test may take it for what it expects.
    """
    arguments, keywords, relayed = read_value(given)
    if isinstance(program, BaseException):
        raise program
    namespace = fresh_main("candidate")
    exec(program, namespace)  # noqa: S102 - the purpose of a box
    name, _, method = entry.partition(".")
    function = getattr(namespace[name](), method) if method else namespace[name]
    try:
        value = function(*arguments, **keywords)
    except Exception as error:
        if not relayed or isinstance(error, MemoryError):
            raise
        answer = b"E" + encoded(described(error))
    else:
        answer = encode_changes(arguments, keywords) if relayed and value is None else b"V" + encoded(value)
    posix.write(result, answer)


def encode_changes(arguments: "list[Any]", keywords: "dict[str, Any]") -> bytes:
    """Return the arguments after a call that returned nothing, if they are still plain values."""
    try:
        return b"M" + encoded([arguments, keywords])
    except TypeError:
        return b"Vnull"


def run_on_input(program: "CodeType | BaseException", _entry: str, given: bytes, result: int) -> None:
    """Run the candidate as a program: ``given`` is its standard input, ``result`` receives its standard output."""
    if isinstance(program, BaseException):
        raise program
    become_input(given)
    posix.write(result, b"V")
    posix.dup2(result, 1)
    try:  # noqa: SIM105 - contextlib takes a millisecond to load
        exec(program, fresh_main())  # noqa: S102 - the purpose of a box
    except SystemExit:
        pass
    finish()


def merged(old: object, new: object) -> object:
    """Copy ``new`` into ``old`` if that is mutable: tests may check what a call did to its arguments."""
    if isinstance(old, list) and isinstance(new, list):
        old[:] = [merged(*pair) for pair in zip(old, new, strict=False)] + new[len(old) :]
    elif isinstance(old, dict) and isinstance(new, dict):
        items = [(key, merged(old[key], item) if key in old else item) for key, item in new.items()]
        old.clear()
        old.update(items)
    elif isinstance(old, set) and isinstance(new, set):
        old.clear()
        old.update(new)
    elif isinstance(old, bytearray) and isinstance(new, bytearray):
        old[:] = new
    else:
        return new
    return old


def run_trusted_tests(fields: list[bytes]) -> None:
    """Run test code whose candidate lives in another box: arguments go out, plain values come back.

    If a call cannot be made or its answer not be read, the tests end at once: an exception could be one that they expect.
    """
    source, helpers, entry = fields
    stops: list[StopIteration] = []

    def candidate(*arguments: "Any", **keywords: "Any") -> "Any":
        try:
            send_frame(b"C" + encoded_call(arguments, keywords))
            reply = read_frame(CONTROL)
            value = read_value(reply[1:])
            if reply[:1] == b"M":
                merged(list(arguments), list(value[0]))
                merged(keywords, value[1])
                value = None
            error = exception_from(*value) if reply[:1] == b"E" else None
        except BaseException as problem:  # noqa: BLE001 - no test may take it for what it expects
            fail_tests(problem)
        if error is None:
            return value
        if not isinstance(error, StopIteration):
            raise error
        stops.append(error)
        try:
            raise error
        except StopIteration:  # from here on it has a traceback, see ended_a_loop
            raise

    namespace = fresh_main("tests")
    try:
        exec(compiled(helpers, "<helpers>"), namespace)  # noqa: S102 - tests of the data set
        namespace[entry.decode()] = candidate
        exec(compiled(source, "<tests>"), namespace)  # noqa: S102 - as above
        namespace["check"](candidate)
    except BaseException as problem:  # noqa: BLE001 - whatever it is, the tests have failed
        fail_tests(problem)
    if any(ended_a_loop(stop, candidate.__code__) for stop in stops):
        send_frame(b"BStopIteration: a built-in function took it for the end of its loop")
    else:
        send_frame(b"G")


def fail_tests(problem: BaseException) -> "NoReturn":
    try:
        words = f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - its __str__ may raise anything
        words = type(problem).__name__
    send_frame(b"B" + words[:500].encode("utf-8", "replace"))
    posix._exit(0)


def ended_a_loop(stop: StopIteration, candidate: "CodeType") -> bool:
    """Return whether no line of the tests received this exception: ``map`` and others do not pass it on.

    Each line through which an exception passes stands in its traceback. ``assertRaises`` removes the traceback.
    """
    trace = stop.__traceback__
    return trace is not None and trace.tb_next is None and trace.tb_frame.f_code is candidate


# -------------------------------------------------------------------------------------------------------------- the door


def set_up() -> None:
    """Set the limits that belong inside the namespace, the search path, and the two folders whose size the host watches."""
    import resource

    # Counted per user namespace, so it limits this box and not its owner's other processes.
    resource.setrlimit(resource.RLIMIT_NPROC, (BOX.processes, BOX.processes))
    posix.set_inheritable(CONTROL, False)
    if not BOX.boxed:
        pid = str(posix.getpid())
        posix.mkdir(pid)
        posix.mkdir(pid + "/work")
        posix.chdir(pid + "/work")
    sys.path[0] = posix.getcwd()
    sys.path.extend(BOX.paths)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)


def announce() -> None:
    import _socket

    watched = ("/box", "/dev/shm") if BOX.boxed else ("..",)  # noqa: S108 - inside the box
    folders = [posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY) for path in watched]
    door = _socket.socket(fileno=CONTROL)
    packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in folders)
    door.sendmsg([b"R"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    door.detach()
    for fd in folders:
        posix.close(fd)


def main(surroundings: "dict[str, Any]") -> None:
    """Wait for the job and do it."""
    vars(BOX).update(surroundings)
    set_up()
    announce()
    job = read_frame(CONTROL)
    import resource

    kind, fields = job[:1], split_fields(job[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (BOX.open_files, BOX.open_files))
    if kind != b"S":
        resource.setrlimit(resource.RLIMIT_CPU, (BOX.cpu_seconds, BOX.cpu_seconds + 1))
    if kind == b"P":
        run_python(fields)
    elif kind == b"X":
        run_command(fields)
    elif kind == b"S":
        run_session(fields)
    elif kind == b"F":
        run_tests(fields, call_function, VALUE_LIMIT)
    elif kind == b"I":
        run_tests(fields, run_on_input, OUTPUT_LIMIT)
    elif kind == b"T":
        run_trusted_tests(fields)
