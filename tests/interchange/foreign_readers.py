"""Reads exported files with the packages that own the formats. Run by ``test_foreign.py`` in a Python that has them.

python foreign_readers.py inspect LOG     →  JSON: what inspect_ai found in it
python foreign_readers.py atif FOLDER     →  JSON: what Harbor's models found in it
"""

import json
import sys
from pathlib import Path


def inspect_log(path: str) -> dict[str, object]:
    from inspect_ai.log import read_eval_log

    log = read_eval_log(path)
    samples = log.samples or []
    return {
        "status": log.status,
        "version": log.version,
        "samples": len(samples),
        "rewards": [sample.scores["reward"].value for sample in samples if sample.scores],
        "errors": sum(sample.error is not None for sample in samples),
        "messages": [len(sample.messages) for sample in samples],
        "mean": log.results.scores[0].metrics["mean"].value if log.results and log.results.scores[0].metrics else None,
    }


def atif(folder: str) -> dict[str, object]:
    from harbor.models.trajectories.trajectory import Trajectory

    found = [Trajectory.model_validate_json(file.read_bytes()) for file in sorted(Path(folder).glob("*.json"))]
    return {
        "documents": len(found),
        "steps": [len(one.steps) for one in found],
        "versions": sorted({f.schema_version for f in found}),
    }


if __name__ == "__main__":
    print(json.dumps({"inspect": inspect_log, "atif": atif}[sys.argv[1]](sys.argv[2])))
