"""The files in ``deploy`` are what they say: scripts that shellcheck passes, objects that the operator would take."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = [DEPLOY / "one-node.sh", DEPLOY / "slurm" / "rollout.sbatch"]


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    """An object with these properties and no others: a field that is misspelt is an error, as with kubeconform --strict."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_COUNT = {"type": "integer", "minimum": 0}
_CONTAINER = _object(
    ["name", "image", "resources"],
    name=_NAME,
    image={"type": "string"},
    ports={"type": "array", "items": _object(["containerPort"], name=_NAME, containerPort={"type": "integer"})},
    resources=_object(["requests", "limits"], requests=_STRINGS, limits=_STRINGS),
    volumeMounts={"type": "array", "items": _object(["name", "mountPath"], name=_NAME, mountPath={"type": "string"})},
)
_CLAIM = _object(["claimName"], claimName=_NAME)
_POD = _object(
    ["spec"],
    spec=_object(
        ["containers"],
        containers={"type": "array", "items": _CONTAINER, "minItems": 1},
        volumes={"type": "array", "items": _object(["name"], name=_NAME, persistentVolumeClaim=_CLAIM)},
        securityContext=_object([], runAsNonRoot={"type": "boolean"}),
    ),
)
_WORKERS = _object(
    ["groupName", "rayStartParams", "template"],
    groupName=_NAME,
    replicas=_COUNT,
    minReplicas=_COUNT,
    maxReplicas=_COUNT,
    rayStartParams=_STRINGS,
    template=_POD,
)
_SPECS = {
    "RayCluster": _object(
        ["rayVersion", "authOptions", "headGroupSpec"],
        rayVersion={"type": "string"},
        authOptions=_object(["mode"], mode={"const": "token"}),  # ours must have it on
        enableInTreeAutoscaling={"type": "boolean"},
        headGroupSpec=_object(["rayStartParams", "template"], rayStartParams=_STRINGS, template=_POD),
        workerGroupSpecs={"type": "array", "items": _WORKERS},
    ),
    "RayJob": _object(["entrypoint"], entrypoint={"type": "string"}, clusterSelector=_STRINGS),
}


@pytest.mark.parametrize("path", sorted((DEPLOY / "kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_objects_keep_the_schema(path: Path) -> None:
    (found,) = yaml.safe_load_all(path.read_text())
    schema = _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "ray.io/v1"},
        kind={"enum": list(_SPECS)},
        metadata=_object(["name"], name=_NAME),
        spec=_SPECS[found["kind"]],
    )
    jsonschema.validate(found, schema)


def test_pods_ask_for_what_they_may_use_and_mount_what_they_name() -> None:
    spec = yaml.safe_load((DEPLOY / "kubernetes" / "raycluster.yaml").read_text())["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]  # else pods are evicted at will
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(script: Path) -> None:
    program = shutil.which("shellcheck")
    assert program is not None, "shellcheck is not installed: it is in the dev group"
    done = subprocess.run([program, str(script)], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_way_to_start_a_cluster_asks_for_a_token(script: Path) -> None:
    assert "RAY_AUTH_MODE=token" in script.read_text()
