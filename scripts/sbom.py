"""Print the bill of materials of a wheel as CycloneDX 1.6: the package, what it requires, and the versions that CI tests with.

    python scripts/sbom.py dist/palestra-0.1.0-py3-none-any.whl > dist/palestra.cdx.json

Two runs on the same files print the same bytes: there is no time and no random number in it.
"""

import argparse
import email
import hashlib
import json
import re
import uuid
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"


def bill(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of ``wheel``."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    about = _metadata(wheel)
    tested = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE))
    name, version = about["Name"], about["Version"]
    own = _reference(name, version)
    parts = [_component(requirement, tested) for requirement in _requirements(about)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"expression": about["License-Expression"]}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts if part["scope"] == "required"]}],
    }


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        [place] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(files.read(place))


def _requirements(about: Message) -> list[tuple[str, bool]]:
    """The name of each required package, and whether the base package needs it; without extras of our own."""
    found: dict[str, bool] = {}
    for line in about.get_all("Requires-Dist") or []:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if name is not None and name[0] != about["Name"]:
            found[name[0].lower()] = found.get(name[0].lower(), False) or "extra ==" not in line
    return sorted(found.items())


def _component(requirement: tuple[str, bool], tested: dict[str, str]) -> dict[str, Any]:
    name, needed = requirement
    reference = _reference(name, tested.get(name))
    part = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "purl": reference,
        "scope": "required" if needed else "optional",
    }
    return {**part, "version": tested[name]} if name in tested else part


def _reference(name: str, version: str | None) -> str:
    return f"pkg:pypi/{name}" + (f"@{version}" if version else "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    print(json.dumps(bill(parser.parse_args().wheel), indent=1, sort_keys=True))
