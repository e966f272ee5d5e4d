"""The files in ``deploy`` are what they say: scripts that shellcheck passes, and clusters that ask for a token."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = [DEPLOY / "one-node.sh", DEPLOY / "slurm" / "rollout.sbatch"]


@pytest.mark.parametrize("path", sorted((DEPLOY / "kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_objects_are_ray_s_and_a_cluster_asks_for_a_token(path: Path) -> None:
    (found,) = yaml.safe_load_all(path.read_text())
    assert found["apiVersion"] == "ray.io/v1"
    assert found["kind"] != "RayCluster" or found["spec"]["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(script: Path) -> None:
    program = shutil.which("shellcheck")
    assert program is not None, "shellcheck is not installed: it is in the dev group"
    done = subprocess.run([program, str(script)], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_way_to_start_a_cluster_asks_for_a_token(script: Path) -> None:
    assert "RAY_AUTH_MODE=token" in script.read_text()
