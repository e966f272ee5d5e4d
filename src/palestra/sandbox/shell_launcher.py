"""The launcher of shell boxes: it prepares the file system of a box in namespaces of its own, and becomes bubblewrap.

A box writes to a layer: a tmpfs with a limit of bytes and of inodes. Over the host's ``/usr`` the layer is the root folder, and
``/usr`` is mounted into it read-only. Over another root folder the layer is the upper part of an overlay. As root, files of the
root folder that belong to uid 0 appear as the box's own (an id-mapped mount). Where the kernel refuses the overlay, the root
folder is copied into the layer.

bubblewrap gets the root folder with ``/dev`` and the host's programs in it, at ``box`` beside the layer (``shell_mounts``).

Nothing is mounted in the host's namespace, so nothing stays mounted, whatever is killed.

Part of the launcher: standard library only.
"""

import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
import termios
from typing import Any, NamedTuple

from palestra.sandbox.cgroups import join
from palestra.sandbox.launcher import LaunchedBox, Launcher, serve
from palestra.sandbox.procfs import children_of, signal_quietly
from palestra.sandbox.shell_copying import copy_tree
from palestra.sandbox.shell_mounts import (
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    Attributes,
    check,
    libc,
    mount,
    mount_box,
    mount_programs,
    set_attributes,
)
from palestra.sandbox.shell_users import COUNT, enter_range, first_of_range, limit_range, shifted

MODULES = ("procfs", "cgroups", "watch", "launcher", "shell_users", "shell_copying", "shell_mounts", "shell_launcher")
"""The modules that are sent to the launcher's process, in the order of their imports."""
COMMANDS, STARTUP, FILTER = 200, 201, 3
"""Descriptors inside the box: the commands, the shell's startup file and the system call filter."""
TERMINAL = "(terminal)"
"""Stands for the name of the box's terminal on the command line of bubblewrap."""
READY = struct.Struct("<ci")
"""The kind of layer (``b`` the host's, ``o`` overlay, ``c`` copy) and the process."""
FULL = 122
"""The exit code of a start that failed because the copy of a layer is full."""
ROOM_INODES, ROOM_BYTES = 4_096, 16 * 2**20
"""What a layer that continues the agent's has beside the agent's files: for mount points, the verifier and its results."""
SPARES = 2
"""Processes that wait as the next boxes: while one starts, a second one has time to get ready."""
IDLE_SECONDS = 1.0
"""Seconds between two looks at a box in which only the shell runs."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same on every architecture
_MOUNT_ATTR_IDMAP = 0x00100000


class _Spare(NamedTuple):
    """A process that has prepared the files of the next box."""

    pid: int
    channel: socket.socket
    group: str
    kills: int


class _Prepared(NamedTuple):
    """What a process that becomes a box has ready before the order to start arrives."""

    kind: bytes
    """The kind of layer."""
    startup: int
    seccomp: int


class ShellLauncher(Launcher):
    """All shell boxes of one host."""

    descriptors = 4
    folders = 1

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        super().__init__(control, config)
        self.startup = self.memory_file(config["startup"].encode())
        self.looked: dict[int, float] = {}
        """When each box was last looked at."""
        self.spares: list[_Spare] = []

    # ------------------------------------------------------------------------------------------------------------- spares

    def _start(self, number: int, fds: list[int]) -> None:
        """Start a box: in a spare process, which has its files already, unless the files are copied from another box."""
        while self.spares and len(fds) == self.descriptors and not _is_folder(fds[3]):
            if self._use_spare(self.spares.pop(0), number, fds):
                return
        super()._start(number, fds)

    def _use_spare(self, spare: _Spare, number: int, fds: list[int]) -> bool:
        """Let the spare process become the box; return false if it has ended."""
        try:
            with spare.channel:
                socket.send_fds(spare.channel, [b"S"], fds)
        except OSError:
            signal_quietly(spare.pid, signal.SIGKILL)  # nothing may run in a group that another box gets
            if self.groups:
                self.groups.give_back(spare.group)
            return False
        self.boxes[number] = self.by_pid[spare.pid] = LaunchedBox(number, spare.pid, spare.group, spare.kills)
        for fd in fds:
            os.close(fd)
        return True

    def _arm(self, box: LaunchedBox, seconds: float, folders: list[int]) -> None:
        super()._arm(box, seconds, folders)
        while len(self.spares) < SPARES and (spare := self._new_spare()):  # now: the shell waits for its first command
            self.spares.append(spare)

    def _new_spare(self) -> _Spare | None:
        """Fork a process that prepares the files of a box and waits. To join a control group takes up to 20 ms."""
        group = ""
        try:
            group = self.groups.take() if self.groups else ""
            kills = (self.groups.kills(group) or 0) if self.groups else 0
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
        except OSError:  # the next start reports it
            if self.groups and group:
                self.groups.give_back(group)
            return None
        if not pid:
            try:
                ours.close()
                self._close_others()
                self._be_spare(theirs, group)
            except BaseException as error:  # noqa: BLE001 - the fork ends here, with the reason
                os.write(2, f"the box could not be started: {error}\n".encode())
            finally:
                os._exit(125)
        theirs.close()
        return _Spare(pid, ours, group, kills)

    def _close_others(self) -> None:
        """Close the channels of the launcher, and the layers of all boxes.

        A layer takes memory until the last process closes it, and a spare may wait long. A spare ends when its channel
        is closed.
        """
        self.control.close()
        for spare in self.spares:
            spare.channel.close()
        for box in self.boxes.values():
            for fd in box.folders:
                os.close(fd)

    def _be_spare(self, channel: socket.socket, group: str) -> None:
        """Prepare the files of a box, and wait for the order to become one.

        If the files cannot be prepared, this process ends, and the next start tries again in a process of its own. Only an
        order that has already arrived reports the problem.
        """
        problem, prepared = "", None
        try:
            prepared = self._prepare(group, -1)
        except OSError as error:
            problem = f"the box could not be started: {error}\n"
            channel.shutdown(socket.SHUT_RD)  # no order can arrive from now on
        data, fds, _, _ = socket.recv_fds(channel, 1, self.descriptors)
        if data and prepared:  # without data, the launcher has ended
            self._finish(fds, prepared)
        elif data:
            os.write(fds[0], problem.encode())

    def _kill_orphans(self) -> None:
        for pid in children_of(os.getpid()):
            if pid not in self.by_pid and all(pid != spare.pid for spare in self.spares):
                signal_quietly(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        self.spares.clear()
        super().kill_all()

    # --------------------------------------------------------------------------------------------------- becoming bubblewrap

    def _become_box(self, number: int, fds: list[int], group: str) -> None:
        source = fds[3] if _is_folder(fds[3]) else -1
        if self.left:
            self.config = _with_room(self.config, source)
        try:
            prepared = self._prepare(group, source)
        except OSError as error:
            os.write(fds[0], f"the box could not be started: {error}\n".encode())
            if source >= 0 and _is_full(f"{self.config['point']}/upper"):
                os._exit(FULL)
            return
        self._finish(fds, prepared)

    def _prepare(self, group: str, source: int) -> _Prepared:
        """Make this process that of a box: its control group, its user, its files, its limits."""
        signal.set_wakeup_fd(-1)
        for inherited in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # programs inherit what is ignored
            signal.signal(inherited, signal.SIG_DFL)
        os.setsid()
        if group:
            join(group)
        with open("/proc/self/oom_score_adj", "w") as file:  # if memory runs out, the kernel kills a box first
            file.write("1000")
        uid = self.config["uid"] and self.config["uid"] + os.getpid() % 1024
        if uid and self.config["users"]:
            uid = first_of_range(os.getpid())
        kind = _prepare_files(self.config, uid, source)
        if self.config["users"]:
            limit_range(self.config["users"]["processes"])
        for which, wanted in self.limits:
            hard = resource.getrlimit(which)[1]  # the host's own limit may be lower
            value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(which, (value, value))
        os.chdir("/")
        os.umask(0o022)
        return _Prepared(
            kind,
            os.open(f"/proc/self/fd/{self.startup}", os.O_RDONLY),
            os.open(f"/proc/self/fd/{self.filter}", os.O_RDONLY),  # opened again, so that it is read from the start
        )

    def _finish(self, fds: list[int], prepared: _Prepared) -> None:
        """Take the terminal and become bubblewrap. A user waits for it, so it does only what needs the terminal."""
        terminal, commands, ready, _ = fds
        os.dup2(terminal, 2)  # it shows what fails from now on
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        places = ("upper", "merged" if prepared.kind == b"o" else "upper")
        folders = [_folder(f"{self.config['point']}/{name}") for name in places]  # a spare holds no folder of its layer
        _send(ready, READY.pack(prepared.kind, os.getpid()), folders)
        self._pass_descriptors(terminal, commands, prepared)
        argv = [_name_of(0) if word == TERMINAL else word for word in self.config["argv"]]
        os.execve(argv[0], argv, {})  # noqa: S606 - it becomes the box

    def _pass_descriptors(self, terminal: int, commands: int, prepared: _Prepared) -> None:
        """Put what the box needs where it expects it, and close everything else."""
        wanted = {
            0: terminal,
            1: terminal,
            2: terminal,
            FILTER: prepared.seccomp,
            COMMANDS: commands,
            STARTUP: prepared.startup,
        }
        clear = {target: fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for target, fd in wanted.items()}
        for target, fd in clear.items():
            os.dup2(fd, target)
        os.closerange(FILTER + 1, COMMANDS)
        os.closerange(STARTUP + 1, 65536)

    def _watch(self, now: float) -> None:
        """Look at the boxes in which a command runs, and less often at the others: an idle shell does not grow.

        With control groups there is nothing to do: the kernel kills the process that needs too much, and the shell reports it.
        """
        for box in list(self.boxes.values()) if not self.groups else ():
            if not box.deadline or box.status is not None:
                continue
            if now - self.looked.get(box.number, 0.0) >= IDLE_SECONDS or _is_busy(box):
                self.looked[box.number] = now
                self._look(box, now)

    def _report(self, box: LaunchedBox) -> None:
        self.looked.pop(box.number, None)
        super()._report(box)


def _is_busy(box: LaunchedBox) -> bool:
    """Return whether something beside the shell runs. The first process inside has one child, the shell."""
    inside = children_of(box.init)
    return len(inside) != 1 or bool(children_of(inside[0]))


# ------------------------------------------------------------------------------------------------------------- file systems


def _prepare_files(config: dict[str, Any], uid: int, source: int) -> bytes:
    """Mount the layer at the configured point, in namespaces of this process. Return the kind of layer."""
    point, root = config["point"], config["root"]
    if not uid:
        _enter_namespace(config)
    check(libc.unshare(_CLONE_NEWNS), "unshare")
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    limits = f"size={config['disk']},nr_inodes={config['inodes']},mode=755"
    identity = f",uid={uid},gid={uid}" if uid else ""
    mount("layer", point, "tmpfs", MS_NOSUID | MS_NODEV, limits + identity)
    for name in ("upper", "work", "merged", "shm", "box"):
        os.mkdir(f"{point}/{name}")
        os.chown(f"{point}/{name}", uid, uid)
    if source >= 0:
        _copy(f"/proc/self/fd/{source}", point, uid)
    kind = _layer_over(root, point, uid, COUNT if config["users"] else 1) if root else b"b"
    if source < 0 and kind == b"c":
        _copy(root, point, uid)
    mount_box(f"{point}/{'merged' if kind == b'o' else 'upper'}", point, uid)
    mount_programs(config["programs"], point, uid)
    if uid and config["users"]:
        enter_range(config, uid)
    elif uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if kind == b"b" and source < 0:
        _write_skeleton(f"{point}/upper", config)
    return kind


def _with_room(config: dict[str, Any], source: int) -> dict[str, Any]:
    """Return ``config`` with limits that leave room beside everything in ``source``, which an agent may have filled."""
    used = os.fstatvfs(source)
    inodes, disk = used.f_files - used.f_ffree, (used.f_blocks - used.f_bfree) * used.f_frsize
    return {
        **config,
        "inodes": max(config["inodes"], inodes) + ROOM_INODES,
        "disk": max(config["disk"], disk) + ROOM_BYTES,
    }


def _is_full(layer: str) -> bool:
    """Return whether the layer itself is full. The machine reports used-up namespaces and mounts by the same error number."""
    try:
        left = os.statvfs(layer)
    except OSError:
        return False
    return os.path.ismount(os.path.dirname(layer)) and (not left.f_ffree or not left.f_bfree)


def _copy(source: str, point: str, uid: int) -> None:
    """Copy a layer or a whole system into the layer. As root, the first user of the source becomes the first of this box."""
    copy_tree(source, f"{point}/upper", shifted(os.stat(source).st_uid, uid) if uid else lambda user: user)


def _enter_namespace(config: dict[str, Any]) -> None:
    """Become root of a user namespace: of one user, or of a range."""
    if config["users"]:
        enter_range(config, 0)
        return
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(_CLONE_NEWUSER), "unshare")
    _map_ids(user, group)


def _layer_over(root: str, point: str, uid: int, count: int) -> bytes:
    """Mount an overlay over ``root``; return ``o``, or ``c`` if the kernel refuses it and ``root`` must be copied."""
    try:
        lower = _id_mapped(root, point, uid, count) if uid else root
        kind = "index=off,metacopy=off" if uid else "userxattr"
        options = f"lowerdir={lower},upperdir={point}/upper,workdir={point}/work,{kind}"
        mount("overlay", f"{point}/merged", "overlay", MS_NOSUID | MS_NODEV, options)
    except OSError:
        return b"c"
    return b"o"


def _id_mapped(root: str, point: str, uid: int, count: int) -> str:
    """Mount ``root`` so that what belongs to the first ``count`` uids appears as that of ``uid`` and the next; return where."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        libc.unshare(_CLONE_NEWUSER)
        os.write(write, b"1")
        while True:
            signal.pause()
    try:
        os.read(read, 1)
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"0 {uid} {count}\n")
        namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    target = f"{point}/lower"
    os.mkdir(target)
    tree = libc.syscall(_OPEN_TREE, -100, root.encode(), 1 | os.O_CLOEXEC)
    check(tree, "open_tree")
    set_attributes(tree, Attributes(_MOUNT_ATTR_IDMAP, 0, 0, namespace))
    check(libc.syscall(_MOVE_MOUNT, tree, b"", -100, target.encode(), 4), "move_mount")
    return target


def _map_ids(user: int, group: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _write_skeleton(layer: str, config: dict[str, Any]) -> None:
    """Write the folders and files of a small system beside ``/usr``."""
    for path, mode in config["folders"]:
        os.makedirs(f"{layer}/{path}", exist_ok=True)
        os.chmod(f"{layer}/{path}", mode)
    for target, path in config["links"]:
        os.symlink(target, f"{layer}{path}")
    for path, text in config["files"].items():
        with open(f"{layer}/{path}", "w") as file:
            file.write(text)


def _is_folder(fd: int) -> bool:
    return stat.S_ISDIR(os.fstat(fd).st_mode)


def _name_of(terminal: int) -> str:
    """Return the path of the terminal, or one that does not exist if a container hides it."""
    try:
        return os.ttyname(terminal)
    except OSError:
        return TERMINAL


def _folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _send(ready: int, packet: bytes, fds: list[int]) -> None:
    with socket.socket(fileno=os.dup(ready)) as channel:
        socket.send_fds(channel, [packet], fds)


def main() -> None:
    """Serve the control socket whose descriptor is the first argument; the second is the configuration."""
    serve(lambda control: ShellLauncher(control, json.loads(sys.argv[2])))
