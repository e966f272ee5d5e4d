"""A tiny model in one small file that NumPy alone reads: weights in float16, the vocabulary, and what is known about the model.

The wheel carries one, ``demo.npz``, which ``palestra demo`` lets play. ``scripts/demo_model.py`` trains, measures and packs it.
"""

import zipfile
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import encode_json
from palestra.inference.engines.numpy_llama import Llama, NumpyEngine
from palestra.inference.models.tiny import END, UNKNOWN, WORDS
from palestra.inference.rendering.words import WordRenderer, WordTokenizer

__all__ = ["PackedModel", "load_demo_model", "load_packed", "pack_model"]

_ABOUT = "about"
_DEMO = "demo.npz"


class Packing(msgspec.Struct, frozen=True):
    """What a packed file says besides the weights."""

    words: tuple[str, ...]
    """The text of every token id."""
    heads: int
    context_length: int
    history: dict[str, Any]
    """How the model was made and how it scores, as the script that made it wrote it."""


class PackedModel(NamedTuple):
    """A model that is ready to sample."""

    engine: NumpyEngine
    renderer: WordRenderer
    history: dict[str, Any]
    """How the model was made and how it scores."""


def load_demo_model() -> PackedModel:
    """Return the model that the wheel carries."""
    with resources.as_file(resources.files(__package__).joinpath(_DEMO)) as file:
        return load_packed(file)


def load_packed(file: Path) -> PackedModel:
    """Read a file that ``pack_model`` wrote. It is data: reading it runs nothing.

    Raises:
        SchemaError: ``file`` is not such a file.

    """
    try:
        with open(file, "rb") as content, np.load(content, allow_pickle=False) as arrays:
            about = msgspec.json.decode(arrays[_ABOUT].tobytes(), type=Packing)
            weights = {name: arrays[name] for name in arrays.files if name != _ABOUT}
        engine = NumpyEngine(Llama(weights, heads=about.heads, context_length=about.context_length))
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise SchemaError(f"{file} is not a packed model: {error}") from error
    words = WordTokenizer(about.words, pattern=WORDS, unknown=UNKNOWN)
    return PackedModel(engine, WordRenderer(words, end=END), about.history)


def pack_model(folder: Path, file: Path, history: dict[str, Any]) -> None:
    """Write the model in ``folder``, which ``build_tiny`` made with ``unit="word"``, into ``file``."""
    import transformers
    from safetensors.numpy import load_file

    config = transformers.AutoConfig.from_pretrained(folder)
    if config.num_key_value_heads != config.num_attention_heads or not config.tie_word_embeddings:
        raise UsageError(
            f"{folder} is not a model that build_tiny makes: it shares key heads or has an output layer of its own"
        )
    words: Any = transformers.AutoTokenizer.from_pretrained(folder)
    texts = tuple(words.decode([id]) for id in range(len(words)))
    about = Packing(texts, config.num_attention_heads, config.max_position_embeddings, history)
    weights: dict[str, Any] = {
        name: tensor.astype(np.float16) for name, tensor in load_file(folder / "model.safetensors").items()
    }
    np.savez_compressed(file, about=np.frombuffer(encode_json(about), np.uint8), **weights)
