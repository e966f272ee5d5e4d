"""The policy's weights for an engine: gathered from all ranks, adapters merged, under the names of transformers.

Two sets of names exist. In memory, transformers renames and fuses tensors of some families (experts, multimodal prefixes).
``memory_weights`` yields those names, for a copy of the model in this process. ``checkpoint_weights`` yields the names and
shapes of the checkpoint, which inference servers read. Only one decoder layer at a time is whole.

``write_weights`` divides the tensors of a model folder among the ranks. Each rank keeps and writes its own, in files of
bounded size, so no host holds a copy of the whole model.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers.core_model_loading import revert_weight_conversion

from palestra.errors import Unsupported
from palestra.training.learner.model import ActorCritic

__all__ = ["checkpoint_weights", "index_weights", "memory_weights", "write_adapters", "write_weights"]

_FILE_BYTES = 2_000_000_000
"""The size from which on a file is closed and the next one begun."""
_LAYER = re.compile(r"(.*\.layers\.\d+)\.")


def memory_weights(network: ActorCritic, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield the full weights on the CPU under the names of the loaded model, tied weights once.

    Every rank must take part: sharded tensors are gathered one at a time.
    """
    model = network.language_model
    adapters = dict(_adapters(model))
    tied = {*model.all_tied_weights_keys, *(model._keys_to_ignore_on_save or ())}
    for stored, parameter in model.state_dict().items():
        name = _plain(stored)
        if ".lora_" in stored or name in tied:
            continue
        adapter = adapters.get(name)
        full = _whole(parameter, dtype) if adapter is None else _typed(_whole(parameter) + _change(adapter), dtype)
        yield name, full


def checkpoint_weights(network: ActorCritic, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield the full weights on the CPU under the names and in the shapes of the checkpoint. Every rank must take part."""
    model = network.language_model
    for _, group in itertools.groupby(memory_weights(network, dtype), key=lambda pair: _owner(pair[0])):
        yield from revert_weight_conversion(model, dict(group)).items()


def write_weights(network: ActorCritic, folder: Path, dtype: torch.dtype, rank: int = 0, ranks: int = 1) -> None:
    """Write this rank's part of the checkpoint into ``folder``. Every rank must take part; ``index_weights`` finishes it."""
    held: dict[str, Tensor] = {}
    files = itertools.count()

    def write() -> None:
        path = folder / f"model-{rank:05d}-{next(files):05d}.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in held.items()}, path, metadata={"format": "pt"})
        held.clear()

    for number, (name, tensor) in enumerate(checkpoint_weights(network, dtype)):
        if number % ranks == rank:
            held[name] = tensor
        if sum(weight.nbytes for weight in held.values()) >= _FILE_BYTES:
            write()
    if held:
        write()


def index_weights(folder: Path) -> None:
    """Write the index of all files that the ranks have written into ``folder``."""
    places: dict[str, str] = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        with safe_open(path, framework="pt") as file:
            places |= dict.fromkeys(file.keys(), path.name)
    total = sum(path.stat().st_size for path in folder.glob("model-*.safetensors"))
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_bytes(msgspec.json.format(msgspec.json.encode(index)))


def write_adapters(network: ActorCritic, folder: Path, dtype: torch.dtype, rank: int = 0) -> None:
    """Write the adapters into ``folder`` as PEFT saves them. Every rank must take part, and rank 0 writes."""
    if any(getattr(adapter, "num_experts", 1) > 1 for _, adapter in _adapters(network.language_model)):
        raise Unsupported('servers load no adapters of experts: use engine.transfer = "folder"')
    if isinstance(network, FSDPModule):
        network.reshard()  # after a pass without gradients, what is outside of the layers is still gathered
    adapters = {
        name.replace(".default.", "."): _whole(parameter, dtype).contiguous()
        for name, parameter in network.model.named_parameters()
        if ".lora_" in name
    }
    if rank == 0:
        network.model.peft_config["default"].save_pretrained(folder)
        save_file(adapters, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _owner(name: str) -> str:
    """What is converted together: a decoder layer, or a tensor outside of all layers."""
    layer = _LAYER.match(name)
    return name if layer is None else layer.group(1)


def _adapters(model: Any) -> Iterator[tuple[str, Any]]:
    """The adapters by the name of the parameter that each changes. Those of experts wrap a parameter instead of a layer."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A"):
            yield f"{_plain(name)}.{getattr(module, 'parameter_name', 'weight')}", module


def _plain(name: str) -> str:
    """The name without the wrappers of PEFT."""
    return name.replace(".base_layer", "")


def _change(adapter: Any) -> Tensor:
    """What the adapter adds to its parameter."""
    up, down = _whole(adapter.lora_B["default"].weight), _whole(adapter.lora_A["default"].weight)
    experts = getattr(adapter, "num_experts", 1)
    if experts > 1:
        change = up.reshape(len(up), -1, experts).permute(2, 0, 1) @ down.reshape(experts, -1, down.shape[-1])
        change = change if adapter._did_swap_in_out_features else change.transpose(1, 2)
    else:
        change = up @ down
    return change * float(adapter.scaling["default"])


def _whole(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    tensor = _typed(tensor.detach(), dtype)  # before it is gathered: half the bytes
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def _typed(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
