"""Attempts to get out of a box, or to harm the machine from inside it.

Each is a Python program that prints ``BREACH`` if it got what it wanted. The caller fills in the names in
capitals: ``CANARY_FILE`` a world-readable host file, ``PORT`` a TCP port on the host's loopback, ``ABSTRACT`` an abstract
unix socket of the host, ``HOST_PID`` a process of the host. Some only try to last or to grow; for those the deadline and the
limits are the test.
"""

from typing import NamedTuple

_SYSCALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    done = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if done >= 0:
        print("BREACH", done)
    return done
"""


class Attempt(NamedTuple):
    name: str
    code: str


def _reads(name: str, path: str) -> Attempt:
    return Attempt(name, f"data = open({path!r}, 'rb').read(64)\nif data: print('BREACH', data[:8])")


def _writes(name: str, path: str) -> Attempt:
    return Attempt(name, f"with open({path!r}, 'w') as f: f.write('1')\nprint('BREACH')")


def _syscall(name: str, arguments: str) -> Attempt:
    return Attempt(name, f"{_SYSCALL}\ncall({arguments})")


def _socket(name: str, arguments: str, then: str = "") -> Attempt:
    return Attempt(name, f"import socket\ns = socket.socket({arguments})\ns.settimeout(1)\n{then}\nprint('BREACH')")


FILES = [
    _reads("shadow", "/etc/shadow"),
    _reads("passwd", "/etc/passwd"),
    _reads("a host file", "CANARY_FILE"),
    _reads("a host file through init", "/proc/1/rootCANARY_FILE"),
    _reads("a host file by dots", "../../../../../../../..CANARY_FILE"),
    _reads("kernel memory", "/proc/kcore"),
    _reads("physical memory", "/dev/mem"),
    _reads("the disk", "/dev/vda"),
    _reads("sysfs", "/sys/kernel/notes"),
    Attempt("root's home", "import os\nprint('BREACH', os.listdir('/root'))"),
    Attempt(
        "another process's environment",
        "import os\nfor p in os.listdir('/proc'):\n"
        "    try:\n        if b'CANARY' in open(f'/proc/{p}/environ','rb').read(): print('BREACH')\n    except OSError: pass",
    ),
    Attempt(
        "canary in own memory or arguments",
        "import os\nfor n in ('environ', 'cmdline'):\n    if b'CANARY' in open('/proc/self/'+n,'rb').read(): print('BREACH')",
    ),
    _writes("write /usr", "/usr/palestra-breach"),
    _writes("write the root", "/palestra-breach"),
    _writes("write /dev", "/dev/palestra-breach"),
    _writes("sysrq", "/proc/sysrq-trigger"),
    _writes("core pattern", "/proc/sys/kernel/core_pattern"),
    _writes("raise namespaces", "/proc/sys/user/max_user_namespaces"),
    Attempt("oom score", "import os\nos.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')\nprint('BREACH')"),
    _writes("oom score back to that of others", "/proc/self/oom_score_adj"),
    _writes("a name through /proc", "/proc/self/comm"),
    Attempt("device node", "import os, stat\nos.mknod('d', 0o666 | stat.S_IFBLK, os.makedev(254, 0))\nprint('BREACH')"),
    Attempt(
        "set-uid program",
        "import os\nfor p in ('/usr/bin/su','/usr/bin/passwd','/usr/bin/mount'):\n"
        "    pid = os.fork()\n    if not pid: os.execv('/usr/bin/python3', ['python3', '-c', 'pass'])\n    os.wait()\n"
        "os.setuid(0)\nprint('BREACH')",
    ),
    Attempt("become another user", "import os\nos.setresuid(0, 0, 0)\nprint('BREACH')"),
    Attempt("change groups", "import os\nos.setgroups([0])\nprint('BREACH')"),
    Attempt("chroot", "import os\nos.chroot('.')\nprint('BREACH')"),
    Attempt(
        "docker socket",
        "import socket\ns = socket.socket(socket.AF_UNIX)\nfor p in ('/var/run/docker.sock','/run/docker.sock'):\n"
        "    try:\n        s.connect(p); print('BREACH')\n    except OSError: pass",
    ),
    _syscall("open by handle", "304, -100, b'\\0'*64, 0"),
]

NAMESPACES = [
    _syscall("new user namespace", "272, 0x10000000"),
    _syscall("new mount namespace", "272, 0x00020000"),
    _syscall("clone into a user namespace", "56, 0x10000000 | 17, 0, 0, 0, 0"),
    _syscall("clone3", "435, b'\\0'*88, 88"),
    _syscall("mount", "165, b'none', b'/box/work', b'tmpfs', 0, 0"),
    _syscall("remount /usr writable", "165, b'none', b'/usr', 0, 32 | 4096, 0"),
    _syscall("unmount /proc", "166, b'/proc', 2"),
    _syscall("pivot_root", "155, b'.', b'.'"),
    _syscall("open_tree", "428, -100, b'/', 1"),
    _syscall("fsopen", "430, b'tmpfs', 0"),
    Attempt("enter init's namespace", f"{_SYSCALL}\nfd = os.open('/proc/1/ns/user', os.O_RDONLY)\ncall(308, fd, 0)"),
    Attempt(
        "unshare program",
        "import subprocess\nif subprocess.run(['unshare', '-Ur', 'true']).returncode == 0: print('BREACH')",
    ),
    Attempt(
        "a box in the box",
        "import subprocess\n"
        "if subprocess.run(['bwrap', '--ro-bind', '/usr', '/usr', '/usr/bin/true']).returncode == 0: print('BREACH')",
    ),
]

PROCESSES = [
    Attempt("kill a host process", "import os\nos.kill(HOST_PID, 0)\nprint('BREACH')"),
    Attempt(
        "see host processes", "import os\nif sum(p.isdigit() for p in os.listdir('/proc')) > 8: print('BREACH')\nprint('seen')"
    ),
    _syscall("ptrace", "101, 16, 1, 0, 0"),
    _syscall("read another's memory", "310, 1, 0, 0, 0, 0, 0"),
    Attempt("priority", "import os\nos.setpriority(os.PRIO_PROCESS, 0, -20)\nprint('BREACH')"),
    Attempt("real-time scheduling", "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\nprint('BREACH')"),
    Attempt(
        "raise limits",
        "import resource\nfor w in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):\n"
        "    try:\n        resource.setrlimit(w, (2**40, 2**40)); print('BREACH')\n    except (ValueError, OSError): pass",
    ),
    Attempt(
        "a daemon that outlives its box",
        "import os, time, signal\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "for s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\ntime.sleep(600)",
    ),
    Attempt(
        "ignore every signal and spin",
        "import signal\nfor s in range(1, 64):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: pass",
    ),
    Attempt(
        "close all output and sleep",
        "import os, time\nfor fd in range(64):\n    try: os.close(fd)\n    except OSError: pass\ntime.sleep(600)",
    ),
    Attempt("kill everything inside", "import os, signal\nos.kill(-1, signal.SIGKILL)\nimport time\ntime.sleep(600)"),
    Attempt(
        "type into the terminal", "import fcntl, os\nfcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')\nprint('BREACH')"
    ),
    Attempt(
        "type into a terminal, high bits set",
        f"{_SYSCALL}\nimport pty\nm, s = pty.openpty()\ncall(16, s, 0x5412 | (1 << 40), b'x')",
    ),
]

NETWORK = [
    _socket("host loopback", "socket.AF_INET", "s.connect(('127.0.0.1', PORT))"),
    _socket("metadata address", "socket.AF_INET", "s.connect(('169.254.169.254', 80))"),
    _socket("the internet", "socket.AF_INET", "s.connect(('1.1.1.1', 53))"),
    _socket("IPv6", "socket.AF_INET6"),
    _socket("UDP", "socket.AF_INET, socket.SOCK_DGRAM"),
    _socket("raw packets", "socket.AF_INET, socket.SOCK_RAW, 1"),
    _socket("link layer", "socket.AF_PACKET, socket.SOCK_RAW"),
    _socket("netlink", "socket.AF_NETLINK, socket.SOCK_RAW"),
    _socket("vsock", "40"),
    _socket("kernel crypto", "38, socket.SOCK_SEQPACKET"),
    _socket("abstract unix socket of the host", "socket.AF_UNIX", "s.connect('\\0ABSTRACT')"),
    Attempt(
        "network devices",
        "names = [line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]\n"
        "if set(names) - {'lo'}: print('BREACH', names)",
    ),
]

KERNEL = [
    _syscall("bpf", "321, 0, b'\\0'*64, 64"),
    _syscall("perf_event_open", "298, b'\\0'*120, 0, -1, -1, 0"),
    _syscall("userfaultfd", "323, 1"),
    _syscall("keyctl", "250, 0, -3, 1"),
    _syscall("add_key", "248, b'user', b'x', b'y', 1, -3"),
    _syscall("io_uring", "425, 1, b'\\0'*120"),
    _syscall("load a module", "175, b'', 0, b''"),
    _syscall("kexec", "246, 0, 0, 0, 0"),
    _syscall("set the clock", "164, b'\\0'*16, 0"),
    _syscall("adjtimex", "159, b'\\0'*208"),
    _syscall("memfd", "319, b'x', 0"),
    _syscall("personality", "135, 0x0040000"),
    _syscall("SysV shared memory", "29, 4242, 4096, 0o1666"),
    _syscall("SysV message queue", "68, 4242, 0o1666"),
    _syscall("SysV semaphore", "64, 4242, 1, 0o1666"),
    _syscall("POSIX message queue", "240, b'breach', 66, 0o666, 0"),
    _syscall("host name", "170, b'breach', 6"),
    _syscall("lock memory", "149, libc.malloc(1 << 20) or 0, 1 << 20"),
    Attempt(
        "32-bit system calls",
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, prot=7)\n"
        "m.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"  # mov eax, 20 (getpid); int 0x80; ret
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "if f() >= 0: print('BREACH')",
    ),
]

BOMBS = [
    Attempt(
        "fork bomb",
        "import os\nn = 0\nfor i in range(400):\n    try:\n        if not os.fork():\n            while True:\n"
        "                try: os.fork()\n                except OSError: pass\n        n += 1\n    except OSError: break\n"
        "if n > 60: print('BREACH', n, flush=True)\nwhile True: pass",
    ),
    Attempt(
        "thread bomb",
        "import threading, time\nn = 0\ntry:\n    for i in range(500):\n        "
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); n += 1\n"
        "except RuntimeError: pass\nif n > 60: print('BREACH', n)",
    ),
    Attempt("memory, one process", "x = bytearray(3 * 2**30)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('BREACH')"),
    Attempt(
        "memory, many processes",
        "import os, time\nfor i in range(40):\n    if not os.fork():\n        x = bytearray(200 * 2**20)\n"
        "        for j in range(0, len(x), 4096): x[j] = 1\n        time.sleep(600)\n"
        "time.sleep(30)\nprint('BREACH')",
    ),
    Attempt("one large file", "f = open('f', 'wb')\nfor i in range(64): f.write(bytes(2**20)); f.flush()\nprint('BREACH')"),
    Attempt(
        "many files fill the disk",
        "for i in range(100):\n    with open(f'f{i}', 'wb') as f: f.write(bytes(4 * 2**20))\nprint('BREACH')",
    ),
    Attempt(
        "shared memory",
        "for i in range(100):\n    with open(f'/dev/shm/f{i}', 'wb') as f: f.write(bytes(4 * 2**20))\nprint('BREACH')",
    ),
    Attempt(
        "inodes",
        "import os\nfor d in ('/box/work', '/dev/shm'):\n    for i in range(2000000): "
        "os.close(os.open(f'{d}/{i}', os.O_CREAT | os.O_WRONLY))\nprint('BREACH')",
    ),
    Attempt(
        "descriptors",
        "import os\nn = 0\ntry:\n    while n < 500: os.open('/dev/null', 0); n += 1\n"
        "except OSError: pass\nif n > 64: print('BREACH')",
    ),
    Attempt("endless output", "import os\nwhile True: os.write(1, b'x' * 65536)"),
    Attempt("endless errors", "import os\nwhile True: os.write(2, b'x' * 65536)"),
    Attempt("spin", "while True: pass"),
    Attempt("sleep", "import time\ntime.sleep(600)"),
    Attempt("catastrophic regex", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')\nprint('BREACH')"),
    Attempt("huge power", "print(len(str(9 ** 9 ** 9)))\nprint('BREACH')"),
    Attempt("huge string", "x = 'x' * (5 * 2**30)\nprint('BREACH')"),
    Attempt(
        "pipe buffers",
        "import os\nheld = []\nwhile len(held) < 1000: held.append(os.pipe())\nprint('BREACH')",
    ),
    Attempt(
        "deep folders",
        "import os\nfor i in range(200000):\n    os.mkdir('d'); os.chdir('d')\nprint('BREACH')",
    ),
]

UNCOUNTED = [
    Attempt("shared anonymous memory", "import mmap\nmmap.mmap(-1, 4096)\nprint('BREACH')"),
    Attempt(
        "shared anonymous memory, high bits set",
        f"{_SYSCALL}\nlibc.mmap.restype = ctypes.c_void_p\n"
        "if libc.syscall(9, ctypes.c_long(0), ctypes.c_long(4096), 3, ctypes.c_long(0x21 | (1 << 40)), ctypes.c_long(-1), 0) > 0:\n"
        "    print('BREACH')",
    ),
    Attempt(
        "shared memory by its device",
        "import mmap, os\nmmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)\nprint('BREACH')",
    ),
    Attempt(
        "huge pages",
        "import mmap\nmmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\nprint('BREACH')",
    ),
    Attempt(
        "larger socket buffers",
        "import socket\na, _ = socket.socketpair()\nfor option in (7, 32):\n    try:\n"
        "        a.setsockopt(1, option, 1 << 24); print('BREACH')\n    except OSError: pass",
    ),
    Attempt("larger pipes", "import fcntl, os\nfcntl.fcntl(os.pipe()[0], 1031, 1 << 20)\nprint('BREACH')"),
    _syscall("inotify", "253"),
    _syscall("inotify with flags", "294, 0"),
]

SESSIONS = [
    Attempt(
        "a name that is no text",
        "import ctypes\nctypes.CDLL(None).prctl(15, b'\\xff) \\xfe')\nwhile True: pass",
    ),
    Attempt(
        "children with names that are no text",
        "import ctypes, os, time\nfor _ in range(5):\n    if not os.fork():\n"
        "        ctypes.CDLL(None).prctl(15, b') R 1 1\\n\\xff'); time.sleep(600)\ntime.sleep(600)",
    ),
    Attempt(
        "continue what was stopped",
        "import os, signal\nfor _ in range(20):\n    if not os.fork():\n        while True:\n"
        "            try: os.kill(-1, signal.SIGCONT)\n            except OSError: pass\n"
        "while True: pass",
    ),
    Attempt(
        "stop the box's first process",
        "import os, signal, time\nos.kill(1, signal.SIGSTOP)\ntime.sleep(600)",
    ),
    Attempt(
        "descriptors in flight",
        "import array, socket\nheld = []\nn = 0\ntry:\n    while n < 2000:\n        a, b = socket.socketpair()\n"
        "        b.close() if n % 2 else held.append(b)\n"
        "        a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [a.fileno()] * 20))])\n"
        "        a.close(); n += 20\nexcept OSError: pass\nif n > 400: print('BREACH', n)",
    ),
]

CHANNEL = [
    Attempt(
        "forged frames", "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 4096)\n    except OSError: pass"
    ),
    Attempt(
        "find the host's socket",
        "import os\nfor fd in range(3, 64):\n    try:\n        "
        "if 'socket' in os.readlink(f'/proc/self/fd/{fd}'): print('BREACH', fd)\n    except OSError: pass",
    ),
    Attempt("terminal escapes in output", "print('\\x1b]0;owned\\x07' * 100)"),
    Attempt("exit code of a success", "import os\nos._exit(0)"),
]

CORPUS: list[Attempt] = [*FILES, *NAMESPACES, *PROCESSES, *NETWORK, *KERNEL, *BOMBS, *UNCOUNTED, *SESSIONS, *CHANNEL]
