"""``palestra doctor --gpu`` and ``--acceptance``: the GPUs of this machine, and whether training works on it."""

import importlib.util
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import typer

from palestra import __version__
from palestra.errors import MissingExtra
from palestra.foundation.encoding import encode_json
from palestra.foundation.installation import how_to_install
from palestra.foundation.terminal import terminal_safe

__all__ = ["acceptance_report", "gpu_report"]

_MARKS = {"passed": "✓", "failed": "✗", "not applicable": "–"}


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        raise MissingExtra(f"training needs torch and transformers: {how_to_install('train')}")


def gpu_report(*, as_json: bool) -> None:
    """Print the devices and the packages that training on them uses."""
    _need_torch()
    import torch

    packages = ("torch", "transformers", "flash-attn", "peft", "vllm", "sglang")
    report: dict[str, Any] = {
        "devices": [_device(torch, index) for index in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "nccl": bool(torch.distributed.is_available() and torch.distributed.is_nccl_available()),
        "packages": {name: _version(name) for name in packages},
    }
    if as_json:
        typer.echo(encode_json(report).decode())
        return
    for device in report["devices"]:
        typer.echo(f"GPU {device['index']}: {device['name']}, {device['gigabytes']} GB, bfloat16: {device['bfloat16']}")
    if not report["devices"]:
        typer.echo("torch finds no CUDA device: training runs on the CPU")
    typer.echo(f"CUDA {report['cuda'] or 'is not in this build of torch'}; NCCL: {'yes' if report['nccl'] else 'no'}")
    typer.echo(", ".join(f"{name} {version or 'not installed'}" for name, version in report["packages"].items()))


def _device(torch: Any, index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        bfloat16 = bool(torch.cuda.is_bf16_supported())
    memory = round(properties.total_memory / 1e9)
    return {"index": index, "name": properties.name, "gigabytes": memory, "bfloat16": bfloat16}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def acceptance_report(model: str | None, *, as_json: bool) -> None:
    """Run the acceptance list, print its table, and end with code 1 if a row failed."""
    _need_torch()
    import torch
    import transformers

    from palestra.training.acceptance import AcceptanceRow, Machine, accept

    transformers.utils.logging.disable_progress_bar()

    def show(row: AcceptanceRow) -> None:
        if not as_json:
            typer.echo(f"{_MARKS[row.outcome]} {row.name:<22} {row.seconds:>7.1f} s  {terminal_safe(row.detail)}")

    with tempfile.TemporaryDirectory() as scratch:
        rows = accept(Machine(Path(scratch), model), show)
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in _MARKS}
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] or ["cpu"]
    report = {
        "palestra": __version__,
        "devices": devices,
        "model": model,
        "counts": counts,
        "rows": [r._asdict() for r in rows],
    }
    if not as_json:
        typer.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + ". To report it, send this line:")
    typer.echo(encode_json(report).decode())
    if counts["failed"]:
        raise typer.Exit(1)
