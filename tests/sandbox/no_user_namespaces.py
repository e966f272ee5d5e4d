"""A process that may not create user namespaces, as on hardened machines and in many containers."""

import ctypes
import os
import sys
from pathlib import Path

from tests.sandbox.abuse_run import become

CLONE_NEWUSER = 0x10000000
UID = 12345


def enter() -> None:
    """Continue, unprivileged, in a user namespace whose ``max_user_namespaces`` is 0; the machine's own is untouched.

    Needs root. The caller continues in a child process; its parent waits for it and exits with its status.
    """
    told_read, told_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    child = os.fork()
    if child:
        os.read(told_read, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text("0 0 65536\n")
        os.write(mapped_write, b"1")
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(told_write, b"1")
    os.read(mapped_read, 1)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    become(UID)
