"""One folder, one writer: the second is refused by name, and no lock outlives its process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.durable.lock import LOCK, lock_folder
from palestra.errors import UsageError

HOLD = """
import sys, time
from pathlib import Path
from palestra.durable.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path, code: str = HOLD) -> subprocess.Popen[str]:
    """A process that holds ``folder`` until its input is closed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def is_free(folder: Path) -> bool:
    try:
        with lock_folder(folder):
            return True
    except UsageError:
        return False


def test_the_second_holder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with lock_folder(folder):
        with pytest.raises(UsageError, match="is in use by this process") as refused, lock_folder(folder):
            pass
        message = str(refused.value)
    assert str(folder) in message
    assert "choose another folder (--out)" in message
    assert is_free(folder)


def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        with pytest.raises(UsageError) as refused, lock_folder(tmp_path):
            pass
        pattern = rf"in use by process {process.pid} \(-c \S+, since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)"
        assert re.search(pattern, str(refused.value))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert is_free(tmp_path)


def test_a_forked_child_that_outlives_its_parent_does_not_hold_the_folder(tmp_path: Path) -> None:
    code = HOLD.replace('print("held"', 'import os\n    if not os.fork(): time.sleep(60); os._exit(0)\n    print("held"')
    code = code.replace("os.fork()", "(pid := os.fork())").replace(
        "print(", 'Path(sys.argv[1], "child").write_text(str(pid)); print('
    )
    with hold(tmp_path, code) as process:
        child = int((tmp_path / "child").read_text())
        assert not is_free(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            assert is_free(tmp_path)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_holder_that_has_not_signed_yet_is_another_process(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        (tmp_path / LOCK).write_bytes(b"\x00torn")
        with pytest.raises(UsageError, match="in use by another process"), lock_folder(tmp_path):
            pass


def test_a_folder_that_cannot_be_written_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*file/run: .*choose another folder"), lock_folder(file / "run"):
        pass


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("palestra.durable.lock.fcntl.flock", cannot)
    with (
        pytest.raises(UsageError, match=r"cannot be locked \(No locks available\).*choose a local disk"),
        lock_folder(tmp_path),
    ):
        pass


def test_a_folder_removed_and_made_again_is_locked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was opened first is no longer the folder's: locking it would exclude no other process."""
    from palestra.durable import lock

    opened = lock._open

    def swapped(file: Path, mode: int) -> int:
        monkeypatch.setattr(lock, "_open", opened)
        descriptor = opened(file, mode)
        file.unlink()
        return descriptor

    monkeypatch.setattr(lock, "_open", swapped)
    with lock_folder(tmp_path):
        assert not is_free(tmp_path)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_forked_child_keeps_a_file_that_got_the_number_of_a_released_lock(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        taken = {number for number in range(256) if is_open(number)}
    # The system gives the lowest free numbers: one of these is that of the lock.
    files = [(tmp_path / str(number)).open("w") for number in range(4)]
    assert taken & {file.fileno() for file in files}
    child = os.fork()
    if not child:
        os._exit(sum(not is_open(file.fileno()) for file in files))
    _, status = os.waitpid(child, 0)
    for file in files:
        file.close()
    assert os.waitstatus_to_exitcode(status) == 0, "the child has closed a file that is not a lock"
