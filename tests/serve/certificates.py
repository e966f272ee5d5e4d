"""A certificate of one day for 127.0.0.1."""

import subprocess
from pathlib import Path
from shutil import which

import pytest

NEEDS_OPENSSL = pytest.mark.skipif(which("openssl") is None, reason="openssl makes the certificate")


def certificate_and_key(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 1 -subj /CN=127.0.0.1"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return certificate, key
