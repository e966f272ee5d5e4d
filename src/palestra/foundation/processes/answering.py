"""The loop of a process that ``OtherPython`` starts: it reads questions and writes answers. It runs with another Python.

Palestra starts this file by its path, with the path of a script as its argument, so both import nothing of Palestra. The script
defines ``answer(asked)``, and ``close()`` if there is something to end. Each line of the input is a question in JSON, each line
of the output its answer. An exception is the answer ``{"failure": traceback}``; ``SystemExit`` ends the process.
"""

import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from typing import Any

ORPHAN_SECONDS = 5.0
"""The time that the process has to end by itself when its parent has ended."""


def main(script: str) -> None:
    """Answer until the input ends."""
    threading.Thread(target=_end_with_parent, args=[os.getppid()], daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints is no answer
    names = runpy.run_path(script)
    try:
        for line in sys.stdin:
            try:
                answer: Any = names["answer"](json.loads(line))
            except Exception:  # noqa: BLE001 - the traceback goes to the parent
                answer = {"failure": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        names.get("close", lambda: None)()


def _end_with_parent(parent: int) -> None:
    """End this process and what it has started, some time after its parent: an answer that hangs never sees the input end."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(ORPHAN_SECONDS)
    os.killpg(os.getpid(), signal.SIGKILL)  # it leads its group, since ``Child`` gives it a session of its own


if __name__ == "__main__":
    main(sys.argv[1])
