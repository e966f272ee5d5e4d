"""The process between the host and its boxes: starts them, watches them, kills them, reaps them.

It is a process of its own because forking a trainer of many gigabytes is slow, because only a subreaper sees the last process
of a box go, and because a deadline must hold while the host's event loop is busy. It runs as a plain script with an empty
environment and imports only the standard library, so that a fork of it costs little and holds no secret. When the host goes,
however it goes, the control socket closes, and every box is killed.

Orders (packets on a socket): ``S`` start a box (with its three file descriptors), ``A`` arm a deadline (the first time with
the folders to watch), ``D`` disarm it, ``K`` kill. Reports: ``E``, sent once a box is gone to its last process: how it ended,
who killed it, and what it used.

When this runs as root, each box gets a uid of its own before anything else happens: bubblewrap started as root would leave
root's reach over files in place, and limits on processes do not bind uid 0.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

ORDER = struct.Struct("<cId")
REPORT = struct.Struct("<cIi10sdq")
PR_SET_CHILD_SUBREAPER = 36
TICK_SECONDS = 0.05
IDLE_CHECKS_PER_TICK = 16
PAGE = resource.getpagesize()
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Box:
    """What is known of one box."""

    __slots__ = ("armed_at", "cpu", "deadline", "folders", "init", "killed_by", "number", "outer", "peak", "status")

    def __init__(self, number: int, outer: int) -> None:
        self.number = number
        self.outer = outer
        self.init = 0
        """The first process inside, once known. When it has gone, everything inside has."""
        self.deadline = 0.0
        self.armed_at = 0.0
        self.folders: list[int] = []
        self.killed_by = b""
        self.status: int | None = None
        self.cpu = 0.0
        self.peak = 0


class Launcher:
    """All boxes of one host."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.config = config
        self.limits = [(getattr(resource, f"RLIMIT_{name}"), value) for name, value in config["rlimits"].items()]
        self.filter = self._memory_file(bytes.fromhex(config["seccomp"]))
        self.boxes: dict[int, Box] = {}
        self.by_pid: dict[int, Box] = {}
        self.turn = 0

    @staticmethod
    def _memory_file(content: bytes) -> int:
        fd = os.memfd_create("filter")
        os.write(fd, content)
        return fd

    # ------------------------------------------------------------------------------------------------------------ the loop

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        next_tick = 0.0
        while True:
            watched = any(box.armed_at for box in self.boxes.values())
            for fd, _ in poll.poll(self._patience(next_tick) if watched else None):
                if fd == wake_read:
                    os.read(wake_read, 4096)
                elif not self._take_order():
                    return
            self._reap()
            now = time.monotonic()
            for box in [box for box in self.boxes.values() if box.deadline and now >= box.deadline]:
                self.kill(box, b"wall_clock")
            if watched and now >= next_tick:
                self._watch(now)
                next_tick = time.monotonic() + TICK_SECONDS

    def _patience(self, next_tick: float) -> float:
        nearest = min((box.deadline for box in self.boxes.values() if box.deadline), default=next_tick)
        return max(0.0, (min(nearest, next_tick) - time.monotonic()) * 1000.0)

    def _take_order(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self.control, ORDER.size, 4)
        except ConnectionError:  # the host went without reading our last reports
            return False
        if len(data) != ORDER.size:
            return False
        order, number, seconds = ORDER.unpack(data)
        if order == b"S":
            self._start(number, fds)
            return True
        box = self.boxes.get(number)
        if box is None:
            for fd in fds:
                os.close(fd)
        elif order == b"A":
            self._arm(box, seconds, fds)
        elif order == b"D":
            box.deadline = 0.0
        else:
            self.kill(box, b"cancelled")
        return True

    # ----------------------------------------------------------------------------------------------------------- start, end

    def _start(self, number: int, fds: list[int]) -> None:
        pid = os.fork()
        if not pid:
            try:
                self._become_box(number, fds)
            except BaseException as error:
                os.write(2, f"the box could not be started: {error}\n".encode())
            finally:
                os._exit(125)
        for fd in fds:
            os.close(fd)
        self.boxes[number] = self.by_pid[pid] = Box(number, pid)

    def _become_box(self, number: int, fds: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        control, out, err = fds
        nothing = os.open("/dev/null", os.O_RDONLY)
        filter_fd = os.open(f"/proc/self/fd/{self.filter}", os.O_RDONLY)  # opened anew, so that it is read from its start
        # First out of the way, then into place: a descriptor may stand where another one has to go.
        clear = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (nothing, out, err, control, filter_fd)]
        for place, fd in enumerate(clear):
            os.dup2(fd, place)
        os.closerange(len(clear), 65536)
        with open("/proc/self/oom_score_adj", "w") as file:  # if memory runs out, a box goes first
            file.write("1000")
        if self.config["uid"]:
            own = self.config["uid"] + number % 1024
            os.setgroups([])
            os.setresgid(own, own, own)
            os.setresuid(own, own, own)
        for which, value in self.limits:
            resource.setrlimit(which, (value, value))
        os.chdir(self.config["folder"])
        os.umask(0o022)
        os.execve(self.config["argv"][0], self.config["argv"], self.config["environment"])

    def _arm(self, box: Box, seconds: float, folders: list[int]) -> None:
        now = time.monotonic()
        box.armed_at = now
        box.deadline = now + seconds
        if folders:
            box.folders = folders
        if not box.init:
            inside = children_of(box.outer) if self.config["boxed"] else []
            box.init = inside[0] if inside else box.outer
            self.by_pid[box.init] = box

    def kill(self, box: Box, reason: bytes) -> None:
        box.killed_by = box.killed_by or reason
        box.deadline = 0.0
        if box.status is not None:  # the outer process has gone already; what is left hangs on the inner one
            kill_quietly(box.init)
            return
        inside = descendants_of(box.outer)
        box.cpu += sum(cpu_seconds(pid) for pid in inside)  # the kernel does not charge the killed to anybody
        for pid in (*inside, box.outer):
            kill_quietly(pid)

    def kill_all(self) -> None:
        """End every box and wait until the last process has gone."""
        for box in list(self.boxes.values()):
            self.kill(box, b"cancelled")
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            box = self.by_pid.pop(pid, None)
            if box is not None:
                self._account(box, usage)
                if pid == box.outer:
                    box.status = status
                    self._last_of(box)
                elif box.status is not None:
                    self._report(box)

    def _last_of(self, box: Box) -> None:
        """The outer process has gone. Report at once if the inner one has too, else when it is reaped."""
        if self.by_pid.get(box.init) is box:
            try:
                pid, _, usage = os.wait4(box.init, os.WNOHANG)
            except ChildProcessError:  # the outer process waited for it, and its use is in the outer's
                del self.by_pid[box.init]
            else:
                if not pid:
                    kill_quietly(box.init)  # it is dying with its parent; this makes sure
                    return
                del self.by_pid[pid]
                self._account(box, usage)
        self._report(box)

    @staticmethod
    def _account(box: Box, usage: resource.struct_rusage) -> None:
        box.cpu += usage.ru_utime + usage.ru_stime
        box.peak = max(box.peak, usage.ru_maxrss * 1024)

    def _report(self, box: Box) -> None:
        del self.boxes[box.number]
        for fd in box.folders:
            os.close(fd)
        assert box.status is not None
        code = os.waitstatus_to_exitcode(box.status)
        packet = REPORT.pack(b"E", box.number, code, box.killed_by, box.cpu, box.peak)
        with contextlib.suppress(ConnectionError):
            self.control.send(packet)

    # ------------------------------------------------------------------------------------------------------------ the watch

    def _watch(self, now: float) -> None:
        """Look at boxes that have run for a tick, and at a few of the open but idle ones."""
        started = [box for box in self.boxes.values() if box.armed_at and box.status is None]
        busy = [box for box in started if box.deadline and now - box.armed_at >= TICK_SECONDS / 2]
        idle = [box for box in started if not box.deadline]
        if idle:
            self.turn = (self.turn + IDLE_CHECKS_PER_TICK) % len(idle)
            busy += (idle + idle)[self.turn : self.turn + min(len(idle), IDLE_CHECKS_PER_TICK)]
        for box in busy:
            if any(used_inodes(fd) > self.config["inodes"] for fd in box.folders):
                self.kill(box, b"files")
            elif self._memory(box) > self.config["memory"]:
                self.kill(box, b"memory")

    def _memory(self, box: Box) -> int:
        pids = [box.init, *descendants_of(box.init)]
        total = sum(resident_bytes(pid) for pid in pids)
        if total <= self.config["memory"]:
            return total
        return sum(proportional_bytes(pid) for pid in pids)  # forks share pages: count each once before killing


# -------------------------------------------------------------------------------------------------------- reading /proc


def children_of(pid: int) -> list[int]:
    """The processes that ``pid`` started or was given."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
    except (OSError, ValueError):
        pass
    return found


def descendants_of(pid: int) -> list[int]:
    """Everything below ``pid``."""
    found: list[int] = []
    pending = [pid]
    while pending and len(found) < 4096:
        children = children_of(pending.pop())
        found.extend(children)
        pending.extend(children)
    return found


def resident_bytes(pid: int) -> int:
    """Memory of ``pid`` that is no file's."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * PAGE


def proportional_bytes(pid: int) -> int:
    """The same, with pages shared by several processes divided among them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss_Anon:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return resident_bytes(pid)


def cpu_seconds(pid: int) -> float:
    """What ``pid`` has used so far."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def used_inodes(fd: int) -> int:
    """How many files there are on the file system of ``fd``."""
    figures = os.fstatvfs(fd)
    return figures.f_files - figures.f_ffree


def kill_quietly(pid: int) -> None:
    """Kill ``pid`` if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Serve the control socket whose descriptor is the first argument; the configuration is the second."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    control = socket.socket(fileno=int(sys.argv[1]))
    launcher = Launcher(control, json.loads(sys.argv[2]))
    try:
        launcher.run()
    finally:
        launcher.kill_all()


if __name__ == "__main__":
    main()
