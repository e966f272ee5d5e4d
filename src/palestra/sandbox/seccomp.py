"""The system calls that a box may not make, as a BPF program.

What a Python program needs is allowed; rarely used kernel interfaces return ``EPERM``. ``clone3`` returns ``ENOSYS``,
because its flags lie in memory that a filter cannot read; the C library then falls back to ``clone``. Calls of a foreign
architecture (32-bit entries on a 64-bit kernel) kill the process, as in libseccomp's default.

Memory that no limit counts is refused too: shared anonymous memory, which stays allocated when the process that touched it has
unmapped it; huge pages; larger buffers for sockets and pipes. Programs share memory through files in ``/dev/shm`` or ``/tmp``.
"""

import errno
import os
import tempfile
from functools import cache
from typing import Any

from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install

__all__ = ["DENIED", "filter_program"]

DENIED = (
    # memory of other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    # mounts and namespaces
    *("mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("unshare", "setns", "chroot", "name_to_handle_at", "open_by_handle_at", "fanotify_init", "quotactl", "swapon", "swapoff"),
    # kernel interfaces with a long history of vulnerabilities
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_create", "memfd_secret", "vmsplice"),
    *(
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "kexec_file_load",
        "reboot",
        "acct",
        "syslog",
        "lookup_dcookie",
    ),
    *("personality", "modify_ldt", "iopl", "ioperm", "vhangup", "sethostname", "setdomainname"),
    # counted per user, not per box
    *("inotify_init", "inotify_init1"),
    # clocks
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    # memory that outlives a process
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink", "mbind", "migrate_pages", "move_pages", "set_mempolicy"),
)

_NAMESPACE_FLAGS = (
    0x00000080,  # CLONE_NEWTIME
    0x00020000,  # CLONE_NEWNS
    0x02000000,  # CLONE_NEWCGROUP
    0x04000000,  # CLONE_NEWUTS
    0x08000000,  # CLONE_NEWIPC
    0x10000000,  # CLONE_NEWUSER
    0x20000000,  # CLONE_NEWPID
    0x40000000,  # CLONE_NEWNET
)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_NETLINK = 1, 16
_MAP_SHARED, _MAP_TYPE, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x0F, 0x20, 0x40000
_F_SETPIPE_SZ = 1031
_SOL_SOCKET, _SO_SNDBUF, _SO_SNDBUFFORCE = 1, 7, 32
_LOW_WORD = 0xFFFFFFFF


@cache
def filter_program() -> bytes:
    """Return the filter in the format of ``bwrap --seccomp``."""
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise MissingExtra(
            f"the box needs seccomp: {how_to_install('sandbox')} and apt-get install libseccomp2 ({error})"
        ) from None
    made = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for name in DENIED:
        made.add_rule(refuse, name)
    made.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for flag in _NAMESPACE_FLAGS:
        made.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    # The kernel reads only the low 32 bits, so a request with high bits set must match too.
    for request in (_TIOCSTI, _TIOCLINUX):
        made.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, _LOW_WORD, request))
    for family in range(_AF_NETLINK):
        if family != _AF_UNIX:
            made.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    made.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.GT, _AF_NETLINK))
    # useradd gives up if the audit socket may not be opened, but continues if the kernel has none.
    made.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), "socket", pyseccomp.Arg(0, pyseccomp.EQ, _AF_NETLINK))
    _bound_memory(made, refuse)
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return os.pread(file.fileno(), 2**20, 0)


def _bound_memory(made: Any, refuse: Any) -> None:
    """Refuse memory that no limit would count."""
    from pyseccomp import MASKED_EQ, Arg

    shared_anonymous = _MAP_SHARED | _MAP_ANONYMOUS
    made.add_rule(refuse, "mmap", Arg(3, MASKED_EQ, _MAP_TYPE | _MAP_ANONYMOUS, shared_anonymous))
    made.add_rule(refuse, "mmap", Arg(3, MASKED_EQ, _MAP_HUGETLB, _MAP_HUGETLB))
    made.add_rule(refuse, "fcntl", Arg(1, MASKED_EQ, _LOW_WORD, _F_SETPIPE_SZ))
    for option in (_SO_SNDBUF, _SO_SNDBUFFORCE):
        made.add_rule(refuse, "setsockopt", Arg(1, MASKED_EQ, _LOW_WORD, _SOL_SOCKET), Arg(2, MASKED_EQ, _LOW_WORD, option))
