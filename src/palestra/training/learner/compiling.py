"""``torch.compile`` for the decoder layers.

Only the layers are compiled: they are alike, so torch compiles one of them and uses the result for all. What is compiled is a
layer's ``forward``, so the hooks around it stay as they are: FSDP gathers and frees the parameters of a layer, and
recomputation repeats it. Lengths are symbols, because every micro-batch has another one. ``segments`` attention is left out,
because it loops over bounds that are others in every micro-batch.
"""

import torch
from transformers import AttentionInterface

from palestra.errors import UsageError
from palestra.training.learner.attention import SEGMENTS, attend
from palestra.training.learner.model import ActorCritic

__all__ = ["check_compiler", "compile_layers"]


def check_compiler(backend: str, device: str) -> None:
    """Compile and run a small function.

    Raises:
        UsageError: torch cannot compile with ``backend`` on ``device``.

    """
    try:
        torch.compile(lambda numbers: numbers.sin() + 1, backend=backend)(torch.ones(2, device=device))
    except Exception as error:  # an unknown backend, a missing compiler, missing headers …
        what = next(line for line in [*str(error).splitlines(), type(error).__name__] if line.strip())
        raise UsageError(
            f'model.compile = "{backend}" does not work on "{device}" ({what}): install a C++ compiler such as g++, on a GPU '
            "also triton, or leave model.compile out"
        ) from error


def compile_layers(network: ActorCritic, backend: str) -> None:
    """Compile every decoder layer of ``network``. torch does it when a layer is first run."""
    AttentionInterface.register(SEGMENTS, torch.compiler.disable(attend))
    for layer in network.language_model.get_decoder().layers:
        layer.forward = torch.compile(layer.forward, backend=backend, dynamic=True)
