"""Run every kind of memory use in a box, and print the machine's peak loss of memory as JSON.

``python -m tests.sandbox.memory_run (group|watch) [uid]``: with limits by control group or by watching. Needs root and
version 1 of the memory controller to measure: everything runs in a control group without a limit, whose peak is kept.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.sandbox.abuse_run import become, preload
from tests.sandbox.memory_kinds import KINDS

from palestra.sandbox import Bubblewrap, Limits, Program, profile
from palestra.sandbox.cgroups import Hierarchy, memory_hierarchy

LIMITS = Limits(wall_seconds=6.0, cpu_seconds=10)


async def peaks(group: Path) -> dict[str, dict[str, Any]]:
    found = {}
    async with Bubblewrap(LIMITS, warm=1) as sandbox:
        await sandbox.run(Program(code=""))
        for kind, code in KINDS.items():
            peak = group / "memory.max_usage_in_bytes"
            before = int((group / "memory.usage_in_bytes").read_text())
            peak.write_text("0")
            outcome = await sandbox.run(Program(code=code))
            used = int(peak.read_text()) - before
            found[kind] = {"ratio": round(used / LIMITS.total_memory, 3), "killed_by": outcome.killed_by}
    return found


def main() -> None:
    place = memory_hierarchy()
    if place is None or place.version != 1:
        raise SystemExit("this needs root and version 1 of the memory controller")
    group = Path(place.folder, f"palestra-measured-{os.getpid()}")
    group.mkdir()
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        group.rmdir()
        sys.exit(os.waitstatus_to_exitcode(status))
    (group / "cgroup.procs").write_text("0")
    below = Hierarchy(1, str(group)) if sys.argv[1] == "group" else None
    setattr(profile, "memory_hierarchy", lambda: below)  # noqa: B010
    asyncio.run(preload())
    if len(sys.argv) > 2:
        os.chmod(group / "memory.max_usage_in_bytes", 0o666)
        become(int(sys.argv[2]))
    json.dump(asyncio.run(peaks(group)), sys.stdout)


if __name__ == "__main__":
    main()
