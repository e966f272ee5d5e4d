"""Programs that take as much memory of one kind as they can, and then sleep until they are killed."""

_FORKS = """
import os, time
def crowd(work, count=44):
    for _ in range(count):
        try:
            if not os.fork():
                try: work()
                finally: time.sleep(600)
        except OSError: break
"""

_SHARED = f"""{_FORKS}
import ctypes, mmap
def work():
    m = mmap.mmap({{fd}}, 800 << 20)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(m)), 1, len(m))
    time.sleep(600)
crowd(work)
time.sleep(600)
"""
KINDS = {
    "anonymous, one process": """
import time
x = []
try:
    while True: x.append(bytearray(8 << 20))
except MemoryError: pass
time.sleep(600)
""",
    "anonymous, many processes": f"{_FORKS}\nheld = []\ncrowd(lambda: held.append(bytearray(200 << 20)))\ntime.sleep(600)",
    "anonymous, shared by forks, then grown": f"""{_FORKS}
base = bytearray(500 << 20)
crowd(lambda: time.sleep(600), 20)
more = []
while True: more.append(bytearray(8 << 20)); time.sleep(0.002)
""",
    "shared, mapped": _SHARED.format(fd=-1),
    "shared, by its device": _SHARED.format(fd='os.open("/dev/zero", os.O_RDWR)'),
    "files in memory": f"""{_FORKS}
def fill(folder):
    try:
        for i in range(1000):
            with open(f"{{folder}}/{{os.getpid()}}-{{i}}", "wb") as f: f.write(bytes(8 << 20))
    except OSError: pass
fill("/box/tmp"), fill("/dev/shm")
held = []
crowd(lambda: held.append(bytearray(100 << 20)))
time.sleep(600)
""",
    "sockets": f"""{_FORKS}
import socket
def work():
    held = []
    try:
        while True:
            held.append(socket.socketpair())
            for one in held[-1]:
                one.setblocking(False)
                try:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
                except OSError: pass
                try:
                    while True: one.send(bytes(1 << 16))
                except BlockingIOError: pass
    except OSError: pass
    time.sleep(600)
crowd(work)
time.sleep(600)
""",
    "sockets that wait to be accepted": """
import os, socket, time
held = []
for n in range(40):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"s{n}")
    listener.listen(4096)
    held.append(listener)
    for _ in range(4096):
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        try:
            s.connect(f"s{n}")
            while True: s.send(bytes(1 << 16))
        except BlockingIOError: pass
        s.close()
time.sleep(600)
""",
    "pipes": f"""{_FORKS}
import fcntl
def work():
    held = []
    try:
        while True:
            held.append(os.pipe2(os.O_NONBLOCK))
            try:
                fcntl.fcntl(held[-1][0], 1031, 1 << 20)
            except OSError: pass
            try:
                while True: os.write(held[-1][1], bytes(4096))
            except BlockingIOError: pass
    except OSError: pass
    time.sleep(600)
crowd(work)
time.sleep(600)
""",
}
