"""Attempts to get out of a box, or to harm the machine from inside it.

Each is a Python program that prints ``BREACH`` if it got what it wanted. The caller fills in the names in
capitals: ``CANARY_FILE`` a world-readable host file, ``PORT`` a TCP port on the host's loopback, ``ABSTRACT`` an abstract
unix socket of the host, ``HOST_PID`` a process of the host. Some only try to last or to grow; for those the deadline and the
limits are the test.
"""

from typing import NamedTuple

from tests.tables import rows

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

    def aimed_at(self, places: dict[str, str]) -> str:
        """The code with the names in capitals filled in."""
        code = self.code
        for name, value in places.items():
            code = code.replace(name, value)
        return code


def _reads(name: str, path: str) -> Attempt:
    return Attempt(name, f"data = open({path!r}, 'rb').read(64)\nif data: print('BREACH', data[:8])")


def _writes(name: str, path: str) -> Attempt:
    return Attempt(name, f"with open({path!r}, 'w') as f: f.write('1')\nprint('BREACH')")


def _syscall(name: str, arguments: str) -> Attempt:
    return Attempt(name, f"{_SYSCALL}\ncall({arguments})")


def _socket(name: str, arguments: str, then: str = "") -> Attempt:
    return Attempt(name, f"import socket\ns = socket.socket({arguments})\ns.settimeout(1)\n{then}\nprint('BREACH')")


FILES = [
    _syscall("open by handle", "304, -100, b'\\0'*64, 0"),
    *rows(_reads)(r"""
shadow ¦ /etc/shadow ‖ passwd ¦ /etc/passwd ‖ a host file ¦ CANARY_FILE ‖ a host file through init ¦ /proc/1/rootCANARY_FILE
a host file by dots ¦ ../../../../../../../..CANARY_FILE ‖ kernel memory ¦ /proc/kcore ‖ physical memory ¦ /dev/mem
the disk ¦ /dev/vda ‖ sysfs ¦ /sys/kernel/notes
"""),
    *rows(Attempt)(r"""
root's home ¦ import os⏎print('BREACH', os.listdir('/root'))
another process's environment ¦ import os⏎for p in os.listdir('/proc'):⏎    try:
  ⏎        if b'CANARY' in open(f'/proc/{p}/environ','rb').read(): print('BREACH')⏎    except OSError: pass
canary in own memory or arguments ¦ import os⏎for n in ('environ', 'cmdline'):
  ⏎    if b'CANARY' in open('/proc/self/'+n,'rb').read(): print('BREACH')
oom score ¦ import os⏎os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')⏎print('BREACH')
device node ¦ import os, stat⏎os.mknod('d', 0o666 | stat.S_IFBLK, os.makedev(254, 0))⏎print('BREACH')
set-uid program ¦ import os⏎for p in ('/usr/bin/su','/usr/bin/passwd','/usr/bin/mount'):⏎    pid = os.fork()
  ⏎    if not pid: os.execv('/usr/bin/python3', ['python3', '-c', 'pass'])⏎    os.wait()⏎os.setuid(0)⏎print('BREACH')
become another user ¦ import os⏎os.setresuid(0, 0, 0)⏎print('BREACH')
change groups ¦ import os⏎os.setgroups([0])⏎print('BREACH') ‖ chroot ¦ import os⏎os.chroot('.')⏎print('BREACH')
docker socket ¦ import socket⏎s = socket.socket(socket.AF_UNIX)⏎for p in ('/var/run/docker.sock','/run/docker.sock'):
  ⏎    try:⏎        s.connect(p); print('BREACH')⏎    except OSError: pass
"""),
    *rows(_writes)(r"""
write /usr ¦ /usr/palestra-breach ‖ write the root ¦ /palestra-breach ‖ write /dev ¦ /dev/palestra-breach
sysrq ¦ /proc/sysrq-trigger ‖ core pattern ¦ /proc/sys/kernel/core_pattern
raise namespaces ¦ /proc/sys/user/max_user_namespaces ‖ oom score back to that of others ¦ /proc/self/oom_score_adj
a name through /proc ¦ /proc/self/comm
"""),
]

NAMESPACES = [
    Attempt("enter init's namespace", f"{_SYSCALL}\nfd = os.open('/proc/1/ns/user', os.O_RDONLY)\ncall(308, fd, 0)"),
    *rows(_syscall)(r"""
new user namespace ¦ 272, 0x10000000 ‖ new mount namespace ¦ 272, 0x00020000
clone into a user namespace ¦ 56, 0x10000000 | 17, 0, 0, 0, 0 ‖ clone3 ¦ 435, b'\0'*88, 88
mount ¦ 165, b'none', b'/box/work', b'tmpfs', 0, 0 ‖ remount /usr writable ¦ 165, b'none', b'/usr', 0, 32 | 4096, 0
unmount /proc ¦ 166, b'/proc', 2 ‖ pivot_root ¦ 155, b'.', b'.' ‖ open_tree ¦ 428, -100, b'/', 1 ‖ fsopen ¦ 430, b'tmpfs', 0
"""),
    *rows(Attempt)(r"""
unshare program ¦ import subprocess⏎if subprocess.run(['unshare', '-Ur', 'true']).returncode == 0: print('BREACH')
a box in the box ¦ import subprocess
  ⏎if subprocess.run(['bwrap', '--ro-bind', '/usr', '/usr', '/usr/bin/true']).returncode == 0: print('BREACH')
"""),
]

PROCESSES = [
    Attempt(
        "type into a terminal, high bits set",
        f"{_SYSCALL}\nimport pty\nm, s = pty.openpty()\ncall(16, s, 0x5412 | (1 << 40), b'x')",
    ),
    *rows(Attempt)(r"""
kill a host process ¦ import os⏎os.kill(HOST_PID, 0)⏎print('BREACH')
see host processes ¦ import os⏎if sum(p.isdigit() for p in os.listdir('/proc')) > 8: print('BREACH')⏎print('seen')
priority ¦ import os⏎os.setpriority(os.PRIO_PROCESS, 0, -20)⏎print('BREACH')
real-time scheduling ¦ import os⏎os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))⏎print('BREACH')
raise limits ¦ import resource
  ⏎for w in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):⏎    try:
  ⏎        resource.setrlimit(w, (2**40, 2**40)); print('BREACH')⏎    except (ValueError, OSError): pass
a daemon that outlives its box ¦ import os, time, signal⏎if os.fork(): os._exit(0)⏎os.setsid()⏎if os.fork(): os._exit(0)
  ⏎for s in range(1, 32):⏎    try: signal.signal(s, signal.SIG_IGN)⏎    except OSError: pass⏎time.sleep(600)
ignore every signal and spin ¦ import signal⏎for s in range(1, 64):⏎    try: signal.signal(s, signal.SIG_IGN)
  ⏎    except (OSError, ValueError): pass⏎while True: pass
close all output and sleep ¦ import os, time⏎for fd in range(64):⏎    try: os.close(fd)⏎    except OSError: pass
  ⏎time.sleep(600)
kill everything inside ¦ import os, signal⏎os.kill(-1, signal.SIGKILL)⏎import time⏎time.sleep(600)
type into the terminal ¦ import fcntl, os⏎fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')⏎print('BREACH')
"""),
    *rows(_syscall)(r"ptrace ¦ 101, 16, 1, 0, 0 ‖ read another's memory ¦ 310, 1, 0, 0, 0, 0, 0"),
]

NETWORK = [
    Attempt(
        "network devices",
        "names = [line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]\n"
        "if set(names) - {'lo'}: print('BREACH', names)",
    ),
    *rows(_socket)(r"""
host loopback ¦ socket.AF_INET ¦ s.connect(('127.0.0.1', PORT))
metadata address ¦ socket.AF_INET ¦ s.connect(('169.254.169.254', 80))
the internet ¦ socket.AF_INET ¦ s.connect(('1.1.1.1', 53)) ‖ IPv6 ¦ socket.AF_INET6
UDP ¦ socket.AF_INET, socket.SOCK_DGRAM ‖ raw packets ¦ socket.AF_INET, socket.SOCK_RAW, 1
link layer ¦ socket.AF_PACKET, socket.SOCK_RAW ‖ netlink ¦ socket.AF_NETLINK, socket.SOCK_RAW ‖ vsock ¦ 40
kernel crypto ¦ 38, socket.SOCK_SEQPACKET ‖ abstract unix socket of the host ¦ socket.AF_UNIX ¦ s.connect('\0ABSTRACT')
"""),
]

KERNEL = [
    Attempt(
        "32-bit system calls",
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, prot=7)\n"
        "m.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"  # mov eax, 20 (getpid); int 0x80; ret
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "if f() >= 0: print('BREACH')",
    ),
    *rows(_syscall)(r"""
bpf ¦ 321, 0, b'\0'*64, 64 ‖ perf_event_open ¦ 298, b'\0'*120, 0, -1, -1, 0 ‖ userfaultfd ¦ 323, 1 ‖ keyctl ¦ 250, 0, -3, 1
add_key ¦ 248, b'user', b'x', b'y', 1, -3 ‖ io_uring ¦ 425, 1, b'\0'*120 ‖ load a module ¦ 175, b'', 0, b''
kexec ¦ 246, 0, 0, 0, 0 ‖ set the clock ¦ 164, b'\0'*16, 0 ‖ adjtimex ¦ 159, b'\0'*208 ‖ memfd ¦ 319, b'x', 0
personality ¦ 135, 0x0040000 ‖ SysV shared memory ¦ 29, 4242, 4096, 0o1666 ‖ SysV message queue ¦ 68, 4242, 0o1666
SysV semaphore ¦ 64, 4242, 1, 0o1666 ‖ POSIX message queue ¦ 240, b'breach', 66, 0o666, 0 ‖ host name ¦ 170, b'breach', 6
lock memory ¦ 149, libc.malloc(1 << 20) or 0, 1 << 20
"""),
]

BOMBS = [
    *rows(Attempt)(r"""
fork bomb ¦ import os⏎n = 0⏎for i in range(400):⏎    try:⏎        if not os.fork():⏎            while True:
  ⏎                try: os.fork()⏎                except OSError: pass⏎        n += 1⏎    except OSError: break
  ⏎if n > 60: print('BREACH', n, flush=True)⏎while True: pass
thread bomb ¦ import threading, time⏎n = 0⏎try:⏎    for i in range(500):
  ⏎        threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); n += 1⏎except RuntimeError: pass
  ⏎if n > 60: print('BREACH', n)
memory, one process ¦ x = bytearray(3 * 2**30)⏎for i in range(0, len(x), 4096): x[i] = 1⏎print('BREACH')
memory, many processes ¦ import os, time⏎for i in range(40):⏎    if not os.fork():⏎        x = bytearray(200 * 2**20)
  ⏎        for j in range(0, len(x), 4096): x[j] = 1⏎        time.sleep(600)⏎time.sleep(30)⏎print('BREACH')
one large file ¦ f = open('f', 'wb')⏎for i in range(64): f.write(bytes(2**20)); f.flush()⏎print('BREACH')
many files fill the disk ¦ for i in range(100):⏎    with open(f'f{i}', 'wb') as f: f.write(bytes(4 * 2**20))⏎print('BREACH')
shared memory ¦ for i in range(100):⏎    with open(f'/dev/shm/f{i}', 'wb') as f: f.write(bytes(4 * 2**20))⏎print('BREACH')
inodes ¦ import os⏎for d in ('/box/work', '/dev/shm'):
  ⏎    for i in range(2000000): os.close(os.open(f'{d}/{i}', os.O_CREAT | os.O_WRONLY))⏎print('BREACH')
descriptors ¦ import os⏎n = 0⏎try:⏎    while n < 500: os.open('/dev/null', 0); n += 1⏎except OSError: pass
  ⏎if n > 64: print('BREACH')
endless output ¦ import os⏎while True: os.write(1, b'x' * 65536)
endless errors ¦ import os⏎while True: os.write(2, b'x' * 65536) ‖ spin ¦ while True: pass
sleep ¦ import time⏎time.sleep(600) ‖ catastrophic regex ¦ import re⏎re.match(r'(a+)+$', 'a' * 40 + 'b')⏎print('BREACH')
huge power ¦ print(len(str(9 ** 9 ** 9)))⏎print('BREACH') ‖ huge string ¦ x = 'x' * (5 * 2**30)⏎print('BREACH')
pipe buffers ¦ import os⏎held = []⏎while len(held) < 1000: held.append(os.pipe())⏎print('BREACH')
deep folders ¦ import os⏎for i in range(200000):⏎    os.mkdir('d'); os.chdir('d')⏎print('BREACH')
"""),
]

UNCOUNTED = [
    Attempt(
        "shared anonymous memory, high bits set",
        f"{_SYSCALL}\nlibc.mmap.restype = ctypes.c_void_p\n"
        "if libc.syscall(9, ctypes.c_long(0), ctypes.c_long(4096), 3, ctypes.c_long(0x21 | (1 << 40)), ctypes.c_long(-1), 0) > 0:\n"
        "    print('BREACH')",
    ),
    *rows(Attempt)(r"""
shared anonymous memory ¦ import mmap⏎mmap.mmap(-1, 4096)⏎print('BREACH')
shared memory by its device ¦ import mmap, os⏎mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)⏎print('BREACH')
huge pages ¦ import mmap⏎mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)⏎print('BREACH')
larger socket buffers ¦ import socket⏎a, _ = socket.socketpair()⏎for option in (7, 32):⏎    try:
  ⏎        a.setsockopt(1, option, 1 << 24); print('BREACH')⏎    except OSError: pass
larger pipes ¦ import fcntl, os⏎fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)⏎print('BREACH')
"""),
    *rows(_syscall)(r"inotify ¦ 253 ‖ inotify with flags ¦ 294, 0"),
]

SESSIONS = [
    *rows(Attempt)(r"""
a name that is no text ¦ import ctypes⏎ctypes.CDLL(None).prctl(15, b'\xff) \xfe')⏎while True: pass
children with names that are no text ¦ import ctypes, os, time⏎for _ in range(5):⏎    if not os.fork():
  ⏎        ctypes.CDLL(None).prctl(15, b') R 1 1\n\xff'); time.sleep(600)⏎time.sleep(600)
continue what was stopped ¦ import os, signal⏎for _ in range(20):⏎    if not os.fork():⏎        while True:
  ⏎            try: os.kill(-1, signal.SIGCONT)⏎            except OSError: pass⏎while True: pass
stop the box's first process ¦ import os, signal, time⏎os.kill(1, signal.SIGSTOP)⏎time.sleep(600)
descriptors in flight ¦ import array, socket⏎held = []⏎n = 0⏎try:⏎    while n < 2000:⏎        a, b = socket.socketpair()
  ⏎        b.close() if n % 2 else held.append(b)
  ⏎        a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [a.fileno()] * 20))])
  ⏎        a.close(); n += 20⏎except OSError: pass⏎if n > 400: print('BREACH', n)
"""),
]

CHANNEL = [
    *rows(Attempt)(r"""
forged frames ¦ import os⏎for fd in range(3, 64):⏎    try: os.write(fd, b'\xff' * 4096)⏎    except OSError: pass
find the host's socket ¦ import os⏎for fd in range(3, 64):⏎    try:
  ⏎        if 'socket' in os.readlink(f'/proc/self/fd/{fd}'): print('BREACH', fd)⏎    except OSError: pass
terminal escapes in output ¦ print('\x1b]0;owned\x07' * 100) ‖ exit code of a success ¦ import os⏎os._exit(0)
"""),
]

CORPUS: list[Attempt] = [*FILES, *NAMESPACES, *PROCESSES, *NETWORK, *KERNEL, *BOMBS, *UNCOUNTED, *SESSIONS, *CHANNEL]
