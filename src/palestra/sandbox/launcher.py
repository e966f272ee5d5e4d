"""The process between the host and its boxes: it starts, watches, kills and reaps them.

It is a separate process for three reasons: forking a trainer of many gigabytes is slow, only a subreaper sees the last process
of a box end, and a deadline must hold while the host's event loop is busy. It runs as a plain script with an empty
environment. It imports only the standard library and the modules that are sent along (``MODULES``), so that a fork of it is
cheap and holds no secret. When the host ends, for whatever reason, the control socket closes and every box is killed.

Orders (packets on a socket): ``S`` start a box (with its three file descriptors), ``A`` let it run until a deadline (the first
time with the folders to watch), ``D`` stop it until the next ``A``, ``K`` kill. Reports: ``E``, sent when the last process of
a box has ended: how it ended, what killed it, and what it used.

Between two orders ``A`` every process of a box is stopped, so processes that a cell left behind use no CPU. A control group
limits the memory if one can be created, else ``watch`` does.

As root, the launcher gives each box a uid of its own first: bubblewrap started as root would keep root's access to files, and
limits on processes do not bind uid 0.
"""

import contextlib
import ctypes
import errno
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
from collections.abc import Callable
from typing import Any

from palestra.sandbox.cgroups import Groups, Hierarchy, join
from palestra.sandbox.procfs import children_of, cpu_seconds, descendants_of, signal_quietly, used_inodes
from palestra.sandbox.watch import MemoryWatch

MODULES = ("procfs", "cgroups", "watch", "launcher")
"""The modules that are sent to the launcher's process, in the order of their imports."""
ORDER = struct.Struct("<cId")
REPORT = struct.Struct("<cIi10sdq")
NOT_STARTED = "no start"
"""Reported as the killer if the launcher could not start or watch the box."""
PR_SET_CHILD_SUBREAPER = 36
TICK_SECONDS = 0.05
STOP_ROUNDS = 8
"""Rounds of looking for processes that a box forked while its others were being stopped."""


class LaunchedBox:
    """The launcher's state of one box."""

    __slots__ = (
        *("armed_at", "cpu", "deadline", "folders", "group", "init", "killed_by", "kills", "number", "outer", "peak"),
        *("status", "stopped"),
    )

    def __init__(self, number: int, outer: int, group: str = "", kills: int = 0) -> None:
        self.number = number
        self.outer = outer
        self.init = 0
        """The first process inside, once known. When it has ended, everything inside has."""
        self.deadline = 0.0
        """The time at which the box is killed; 0 while it must not run."""
        self.armed_at = 0.0
        self.folders: list[int] = []
        self.killed_by = b""
        self.status: int | None = None
        self.cpu = 0.0
        self.peak = 0
        self.group = group
        """The folder of its control group, if any, and the number of kills that the kernel had counted there before."""
        self.kills = kills
        self.stopped: set[int] = set()
        """The processes that were stopped and not continued."""

    def processes(self) -> list[int]:
        """Return all processes inside."""
        return [self.init, *descendants_of(self.init)]


class Launcher:
    """All boxes of one host."""

    descriptors = 3
    """Descriptors that come with the order to start a box."""
    folders = 2
    """Descriptors of file systems that come with the first order to run."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.config = config
        self.limits = [(getattr(resource, f"RLIMIT_{name}"), value) for name, value in config["rlimits"].items()]
        self.filter = self.memory_file(bytes.fromhex(config["seccomp"]))
        self.left = False
        """Whether the box that is started continues what an agent has left."""
        self.boxes: dict[int, LaunchedBox] = {}
        self.by_pid: dict[int, LaunchedBox] = {}
        cgroup = config["cgroup"]
        self.groups = Groups(Hierarchy(*cgroup), config["memory"]) if cgroup else None
        self.watch: MemoryWatch[LaunchedBox] = MemoryWatch(config["memory"])

    @staticmethod
    def memory_file(content: bytes) -> int:
        """Return a descriptor of a file in memory with this content."""
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
            running = any(box.deadline for box in self.boxes.values())
            patience = 0.0 if self.watch.pending else self._patience(next_tick) if running else None
            for fd, _ in poll.poll(patience):
                if fd == wake_read:
                    os.read(wake_read, 4096)
                elif not self._take_order():
                    return
            self._reap()
            now = time.monotonic()
            for box in [box for box in self.boxes.values() if box.deadline and now >= box.deadline]:
                self.kill(box, b"wall_clock")
            if running and now >= next_tick:
                self._watch(now)
                next_tick = time.monotonic() + TICK_SECONDS
            if self.watch.pending:
                self._measure(time.monotonic())

    def _patience(self, next_tick: float) -> float:
        nearest = min((box.deadline for box in self.boxes.values() if box.deadline), default=next_tick)
        return max(0.0, (min(nearest, next_tick) - time.monotonic()) * 1000.0)

    def _take_order(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self.control, ORDER.size, 4)
        except ConnectionError:  # the host ended without reading the last reports
            return False
        if len(data) != ORDER.size:
            return False
        order, number, seconds = ORDER.unpack(data)
        if order in (b"S", b"L"):
            self.left = order == b"L"
            self._start(number, fds)
            return True
        box = self.boxes.get(number)
        if box is None:
            for fd in fds:
                os.close(fd)
        elif order == b"A":
            self._arm(box, seconds, fds)
        elif order == b"D":
            self._disarm(box)
        else:
            self.kill(box, b"cancelled")
        return True

    # ----------------------------------------------------------------------------------------------------------- start, end

    def _start(self, number: int, fds: list[int]) -> None:
        group = ""
        try:
            if len(fds) != self.descriptors:
                raise OSError(errno.EMFILE, "no descriptors left for a box")
            group = self.groups.take() if self.groups else ""
            kills = (self.groups.kills(group) or 0) if self.groups else 0
            pid = os.fork()
        except OSError as error:
            if self.groups and group:
                self.groups.give_back(group)
            self._refuse(number, fds, error)
            return
        if not pid:
            try:
                self._become_box(number, fds, group)
            except BaseException as error:  # noqa: BLE001 - the fork ends here, with the reason
                os.write(2, f"the box could not be started: {error}\n".encode())
            finally:
                os._exit(125)
        for fd in fds:
            os.close(fd)
        self.boxes[number] = self.by_pid[pid] = LaunchedBox(number, pid, group, kills)

    def _refuse(self, number: int, fds: list[int], error: OSError) -> None:
        print(f"the launcher could not start a box: {error}", file=sys.stderr, flush=True)
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ConnectionError):
            self.control.send(REPORT.pack(b"E", number, 125, NOT_STARTED.encode(), 0.0, 0))

    def _become_box(self, number: int, fds: list[int], group: str) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        control, out, err = fds
        nothing = os.open("/dev/null", os.O_RDONLY)
        filter_fd = os.open(f"/proc/self/fd/{self.filter}", os.O_RDONLY)  # opened again, so that it is read from the start
        # Move them out of the way first: a descriptor may have the number that another one needs.
        clear = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (nothing, out, err, control, filter_fd)]
        for target, fd in enumerate(clear):
            os.dup2(fd, target)
        os.closerange(len(clear), 65536)
        if group:
            join(group)
        with open("/proc/self/oom_score_adj", "w") as file:  # if memory runs out, the kernel kills a box first
            file.write("1000")
        if self.config["uid"]:
            uid = self.config["uid"] + number % 1024
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        for which, wanted in self.limits:
            hard = resource.getrlimit(which)[1]  # the host's own limit may be lower
            value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(which, (value, value))
        os.chdir(self.config["folder"])
        os.umask(0o022)
        os.execve(self.config["argv"][0], self.config["argv"], self.config["environment"])  # noqa: S606 - it becomes the box

    def _arm(self, box: LaunchedBox, seconds: float, folders: list[int]) -> None:
        now = time.monotonic()
        box.armed_at = now
        box.deadline = now + seconds
        if folders:
            box.folders = folders
        if not box.init:
            if self.config["boxed"] and len(folders) != self.folders:  # the kernel drops descriptors if there is no room
                self.kill(box, NOT_STARTED.encode())
            inside = children_of(box.outer) if self.config["boxed"] else []
            box.init = inside[0] if inside else box.outer
            self.by_pid[box.init] = box
        if not self.watch.measures(box):
            self._continue(box)

    def _disarm(self, box: LaunchedBox) -> None:
        box.deadline = 0.0
        if not self._stop(box):
            self.kill(box, b"cancelled")  # it forks faster than the launcher can stop it

    @staticmethod
    def _stop(box: LaunchedBox) -> bool:
        """Stop every process inside; return false if new ones keep appearing."""
        for _ in range(STOP_ROUNDS):
            processes = set(box.processes())
            for pid in processes:  # signal all of them again: one not yet stopped may have continued another
                signal_quietly(pid, signal.SIGSTOP)
            if processes <= box.stopped:
                return True
            box.stopped |= processes
        return False

    @staticmethod
    def _continue(box: LaunchedBox) -> None:
        for pid in box.stopped:
            signal_quietly(pid, signal.SIGCONT)
        box.stopped.clear()

    def kill(self, box: LaunchedBox, reason: bytes) -> None:
        box.killed_by = box.killed_by or reason
        box.deadline = 0.0
        if box.status is not None:  # the outer process has ended; the inner one holds the rest
            signal_quietly(box.init, signal.SIGKILL)
            return
        inside = descendants_of(box.outer)
        box.cpu += sum(cpu_seconds(pid) for pid in inside)  # the kernel does not charge killed processes to their parent
        for pid in (*inside, box.outer):
            signal_quietly(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill every box and wait until the last process has ended."""
        for box in list(self.boxes.values()):
            self.kill(box, b"cancelled")
        with contextlib.suppress(ChildProcessError):
            while True:
                self._kill_orphans()
                os.waitpid(-1, 0)

    def _kill_orphans(self) -> None:
        """Kill children that belong to no box: bubblewrap was killed after its fork, before its child could notice that."""
        for pid in children_of(os.getpid()):
            if pid not in self.by_pid:
                signal_quietly(pid, signal.SIGKILL)

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

    def _last_of(self, box: LaunchedBox) -> None:
        """Handle the end of the outer process. Report now if the inner one has ended too, else when it is reaped."""
        if self.by_pid.get(box.init) is box:
            try:
                pid, _, usage = os.wait4(box.init, os.WNOHANG)
            except ChildProcessError:  # the outer process waited for it, and its usage includes the inner one's
                del self.by_pid[box.init]
            else:
                if not pid:
                    signal_quietly(box.init, signal.SIGKILL)  # it dies with its parent; this makes sure
                    return
                del self.by_pid[pid]
                self._account(box, usage)
        elif self.config["boxed"]:
            self._kill_orphans()
        self._report(box)

    @staticmethod
    def _account(box: LaunchedBox, usage: resource.struct_rusage) -> None:
        box.cpu += usage.ru_utime + usage.ru_stime
        box.peak = max(box.peak, usage.ru_maxrss * 1024)

    def _report(self, box: LaunchedBox) -> None:
        del self.boxes[box.number]
        for fd in box.folders:
            os.close(fd)
        self.watch.forget(box)
        if self.groups:
            if self._is_full(box):
                box.killed_by = box.killed_by or b"memory"
            self.groups.give_back(box.group)
        assert box.status is not None
        code = os.waitstatus_to_exitcode(box.status)
        packet = REPORT.pack(b"E", box.number, code, box.killed_by, box.cpu, box.peak)
        with contextlib.suppress(ConnectionError):
            self.control.send(packet)

    # ------------------------------------------------------------------------------------------------------------ the watch

    def _watch(self, now: float) -> None:
        """Check the boxes that have run for a tick. The others are stopped and cannot grow."""
        for box in list(self.boxes.values()):
            if not box.deadline or box.status is not None or now - box.armed_at < TICK_SECONDS / 2:
                continue
            if any(used_inodes(fd) > self.config["inodes"] for fd in box.folders):
                self.kill(box, b"files")
                continue
            self._look(box, now)

    def _look(self, box: LaunchedBox, now: float) -> None:
        """Kill ``box`` if it uses too much memory, or begin to measure it."""
        over = self._is_full(box) if self.groups else self.watch.is_over(box, now)
        if over or (over is None and not self._stop(box)):
            self.kill(box, b"memory")
        elif over is None:
            self.watch.begin(box)

    def _is_full(self, box: LaunchedBox) -> bool:
        assert self.groups is not None
        return (self.groups.kills(box.group) or 0) > box.kills  # a group that is gone counts no kills

    def _measure(self, now: float) -> None:
        """Measure one more process of a box; orders of other boxes are handled in between."""
        box, over = self.watch.step(now)
        if over:
            self.kill(box, b"memory")
        elif not self.watch.measures(box) and box.deadline:
            self._continue(box)


def main() -> None:
    """Serve the control socket whose descriptor is the first argument; the second is the configuration."""
    serve(lambda control: Launcher(control, json.loads(sys.argv[2])))


def serve(make: Callable[[socket.socket], Launcher]) -> None:
    """Run the launcher that ``make`` makes for the control socket; kill every box when the host has gone."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    control = socket.socket(fileno=int(sys.argv[1]))
    launcher = make(control)
    try:
        launcher.run()
    finally:
        launcher.kill_all()
        if launcher.groups:
            launcher.groups.close()
