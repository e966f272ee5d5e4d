"""A new Harbor task that works: count the lines of a file. Change the texts to make it yours."""

import re
from pathlib import Path

from palestra.errors import UsageError

__all__ = ["new_task"]

_FILES = {
    "task.toml": """schema_version = "1.4"

[task]
name = "{organization}/{name}"
description = "Count the lines of a file."

[environment]
network_mode = "no-network"
memory_mb = 512

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 60.0
""",
    "instruction.md": "Count the lines of `/app/data.txt`, and write the number to `/app/answer.txt`.\n",
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY data.txt .\n",
    "environment/data.txt": "one\ntwo\nthree\n",
    "tests/test.sh": """#!/bin/bash
# Write a number to /logs/verifier/reward.txt, or names and numbers to reward.json. The exit code means nothing.
if [ "$(cat /app/answer.txt 2>/dev/null)" = 3 ]; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
""",
    "solution/solve.sh": "#!/bin/bash\ngrep -c '' /app/data.txt > /app/answer.txt\n",
}


def new_task(folder: Path, organization: str = "local") -> Path:
    """Write a small task into the new folder ``folder`` and return it.

    Raises:
        UsageError: The folder exists, or its name is not that of a task.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", folder.name):
        raise UsageError(f'"{folder.name}" is not the name of a task: use letters, digits, dots, hyphens and underscores')
    if folder.exists():
        raise UsageError(f"{folder} exists already: name a new folder")
    for path, text in _FILES.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("{organization}", organization).replace("{name}", folder.name))
        target.chmod(0o755 if path.endswith(".sh") else 0o644)
    return folder
