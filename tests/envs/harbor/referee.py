"""Run by a Python that has the package harbor: print what its own reader says about each task folder, as JSON."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any


def main() -> None:
    warnings.simplefilter("ignore")
    from harbor.models.task.config import TaskConfig

    found: dict[str, Any] = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        try:
            config = TaskConfig.model_validate_toml((folder / "task.toml").read_text())
        except (OSError, ValueError):
            found[folder.name] = None
            continue
        environment = config.environment
        found[folder.name] = {
            "schema": config.schema_version,
            "network": environment.network_mode.value,
            "memory": environment.memory_mb,
            "storage": environment.storage_mb,
            "os": environment.os.value,
            "env": environment.env,
            "steps": [step.name for step in config.steps or []],
            "verifier": [config.verifier.timeout_sec, config.verifier.env],
            "agent": [config.agent.timeout_sec, config.agent.user],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
