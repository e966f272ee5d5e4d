"""What runs inside a box. It is sent in as compiled code and imports nothing that costs a millisecond.

A box is started ahead and waits here for its one job. File descriptor 3 is a socket to the host: frames of a four-byte length
and a payload, the first byte of which is the kind. Until the job begins this code is trusted; from then on the host takes
whatever arrives as written by an enemy, because model-written code may share this process.

Kinds of job: ``P`` run Python once and end; ``X`` become another program; ``S`` an interpreter that answers cells until the
host hangs up; ``F`` and ``I`` judge a candidate, one forked process a test (``F`` calls a function, ``I`` runs a program on
an input); ``T`` run trusted test code against a candidate that lives in another box. Expected values never come in here.
"""

import posix
import sys

CONTROL = 3
RESULT_LIMIT = 2**22


# ----------------------------------------------------------------------------------------------------------------- frames


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


def send_frame(payload):
    view = memoryview(len(payload).to_bytes(4, "big") + payload)
    while view:
        view = view[posix.write(CONTROL, view) :]


def split_fields(payload):
    """The fields of a job: each a four-byte length and its bytes."""
    fields, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        fields.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


# ----------------------------------------------------------------------------------------------------------------- values


def encode_value(value):
    """``value`` as ASCII JSON. Exact types only: a subclass may lie about itself. Text is hex, so nothing needs escaping."""
    kind = type(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return '{"int":"%x"}' % value
    if kind is float:
        return '{"float":"%s"}' % value.hex()
    if kind is str:
        return '{"str":"%s"}' % value.encode("utf-8", "surrogatepass").hex()
    if kind is bytes:
        return '{"bytes":"%s"}' % value.hex()
    if kind is complex:
        return '{"complex":["%s","%s"]}' % (value.real.hex(), value.imag.hex())
    if kind is list:
        return "[%s]" % ",".join(map(encode_value, value))
    if kind is tuple or kind is set or kind is frozenset:
        return '{"%s":[%s]}' % (kind.__name__, ",".join(map(encode_value, value)))
    if kind is dict:
        return '{"dict":[%s]}' % ",".join("[%s,%s]" % (encode_value(k), encode_value(v)) for k, v in value.items())
    raise TypeError("a %s cannot be judged: return plain values" % kind.__name__)


# ------------------------------------------------------------------------------------------------------------- one program


def fresh_main():
    module = type(sys)("__main__")
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    return module.__dict__


def put_files(fields):
    """Write the files of a job: name, content, name, content. Names are checked by the host."""
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


def hidden_file(content=b""):
    """An unlinked file: input that can be read at any pace, or output that is read when its writer has ended."""
    fd = posix.open("/box/tmp" if BOXED else ".", posix.O_TMPFILE | posix.O_RDWR, 0o600)
    view = memoryview(content)
    while view:
        view = view[posix.write(fd, view) :]
    posix.lseek(fd, 0, 0)
    return fd


def become_input(content):
    fd = hidden_file(content)
    posix.dup2(fd, 0)
    posix.close(fd)


def show_exception(error, frames):
    """Print ``error`` as the interpreter does, without the outermost ``frames``, which are ours."""
    trace = error.__traceback__
    for _ in range(frames):
        trace = trace.tb_next if trace is not None else None
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def run_python(fields):
    code, stdin, *files = fields
    put_files(files)
    become_input(stdin)
    posix.close(CONTROL)
    status = 0
    try:
        exec(compile(code, "<code>", "exec", 0, True), fresh_main())
    except SystemExit as error:
        status = exit_status(error)
    except BaseException as error:
        show_exception(error, 1)
        status = 1
    finish()
    posix._exit(status)


def exit_status(error):
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write("%s\n" % (error.code,))
    return 1


def finish():
    """What programs rely on at an interpreter's end: wait for threads, run exit functions, flush."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def run_command(fields):
    arguments, stdin, *files = fields
    put_files(files)
    become_input(stdin)
    words = arguments.split(b"\0")
    for folder in (b"/usr/bin/", b"/usr/local/bin/", b"/usr/sbin/") if b"/" not in words[0] else (b"",):
        try:
            posix.execve(folder + words[0], words, ENVIRONMENT)
        except FileNotFoundError:
            continue
    sys.stderr.write("no program %r in the box\n" % words[0].decode())
    sys.exit(127)


# ---------------------------------------------------------------------------------------------------------------- a session


def run_cell(source, namespace):
    """Run ``source``; if it ends in an expression, show its value. True if nothing was raised."""
    import _ast

    try:
        tree = compile(source, "<cell>", "exec", _ast.PyCF_ONLY_AST, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        exec(compile(tree, "<cell>", "exec", 0, True), namespace)
        if last is not None:
            value = eval(compile(_ast.Expression(last.value), "<cell>", "eval", 0, True), namespace)
            if value is not None:
                namespace["_"] = value
                print(repr(value))
    except BaseException as error:
        show_exception(error, 1)
        return False
    return True


def run_session(fields):
    put_files(fields)
    namespace = fresh_main()
    while True:
        frame = read_frame()
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
            except Exception:
                good = False
        send_frame(b"1" if good else b"0")


# ------------------------------------------------------------------------------------------------------------ the judged


def run_tests(fields, one_test):
    """Answer each test frame with what a fresh fork of this process made of it."""
    source, entry = fields[0], fields[1].decode()
    try:
        program = compile(source, "<candidate>", "exec", 0, True)
    except BaseException as error:
        program = error
    while True:
        given = read_frame()
        result = hidden_file()
        pid = posix.fork()
        if not pid:
            try:
                posix.close(CONTROL)
                one_test(program, entry, given, result)
            except BaseException as error:
                posix.ftruncate(result, 0)
                posix.pwrite(result, b"X" + ("%s: %s" % (type(error).__name__, error))[:500].encode("utf-8", "replace"), 0)
            finally:
                posix._exit(0)
        posix.waitpid(pid, 0)
        answer = posix.pread(result, RESULT_LIMIT, 0)
        posix.close(result)
        send_frame(answer or b"N")


def call_function(program, entry, given, result):
    """Write what ``entry`` returns. The arguments are evaluated first, before anything of the candidate's has run."""
    arguments = eval(given, {"nan": float("nan"), "inf": float("inf")})
    if isinstance(program, BaseException):
        raise program
    namespace = fresh_main()
    exec(program, namespace)
    name, _, method = entry.partition(".")
    function = getattr(namespace[name](), method) if method else namespace[name]
    answer = b"V" + encode_value(function(*arguments)).encode()
    posix.write(result, answer)


def run_on_input(program, _entry, given, result):
    """Run the candidate as a program: ``given`` on its standard input, its standard output into ``result``."""
    if isinstance(program, BaseException):
        raise program
    become_input(given)
    posix.write(result, b"V")
    posix.dup2(result, 1)
    try:
        exec(program, fresh_main())
    except SystemExit:
        pass
    finish()


def run_trusted_tests(fields):
    """Run test code whose candidate is a voice from another box: arguments go out, plain values come back."""
    source, helpers, entry = fields

    def candidate(*arguments):
        send_frame(b"C" + encode_value(arguments).encode())
        reply = read_frame()
        if reply[:1] != b"V":
            raise RuntimeError(reply[1:].decode("utf-8", "replace"))
        return eval(reply[1:], {"nan": float("nan"), "inf": float("inf")})

    namespace = fresh_main()
    try:
        exec(compile(helpers, "<helpers>", "exec", 0, True), namespace)
        namespace[entry.decode()] = candidate
        exec(compile(source, "<tests>", "exec", 0, True), namespace)
        namespace["check"](candidate)
    except BaseException as error:
        send_frame(b"B" + ("%s: %s" % (type(error).__name__, error))[:500].encode("utf-8", "replace"))
    else:
        send_frame(b"G")


# -------------------------------------------------------------------------------------------------------------- the door


def set_up():
    """Limits that must be set inside the namespace, the search path, and the two folders whose filling the host watches."""
    import resource

    # Counted per user namespace, so it binds this box and not its owner's other processes.
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    posix.set_inheritable(CONTROL, False)
    if not BOXED:
        own = str(posix.getpid())
        posix.mkdir(own)
        posix.mkdir(own + "/work")
        posix.chdir(own + "/work")
    sys.path[0] = posix.getcwd()
    sys.path.extend(PATHS)
    import builtins

    builtins.exit = builtins.quit = sys.exit
    return resource


def announce():
    import _socket

    folders = [posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY) for path in (("/box", "/dev/shm") if BOXED else ("..",))]
    door = _socket.socket(fileno=CONTROL)
    packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in folders)
    door.sendmsg([b"R"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    door.detach()
    for fd in folders:
        posix.close(fd)


def main():
    resource = set_up()
    announce()
    job = read_frame()
    kind, fields = job[:1], split_fields(job[1:])
    if kind != b"S":
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    if kind == b"P":
        run_python(fields)
    elif kind == b"X":
        run_command(fields)
    elif kind == b"S":
        run_session(fields)
    elif kind == b"F":
        run_tests(fields, call_function)
    elif kind == b"I":
        run_tests(fields, run_on_input)
    elif kind == b"T":
        run_trusted_tests(fields)


main()
