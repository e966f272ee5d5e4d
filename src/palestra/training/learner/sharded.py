"""Load a model with several ranks so that no rank ever holds the whole model.

The network is built without memory for its parameters (torch's ``meta`` device) and sharded by FSDP. Then each rank reads its
own rows from the safetensors files. transformers renames the tensors of some checkpoints (multimodal prefixes); these are read
by rows, too. It fuses the tensors of others (experts); such a tensor is converted by transformers, whole, and each rank keeps
its rows before the next one is read.

Adapters and the critic are small. They are drawn as one rank draws them, so that the number of ranks does not change a run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn

from palestra.errors import Unsupported
from palestra.recipes.model import ModelConfig
from palestra.training.learner.model import ActorCritic, shard
from palestra.training.learner.state import local_rows

__all__ = ["checkpoint_files", "empty_model", "hollow", "load_sharded", "replace_parameters"]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


def checkpoint_files(path: str) -> list[Path]:
    """Return the files that hold the tensors of a model by rows; none if each rank must load the model whole.

    That is so for a single rank, for quantized checkpoints, and for those without safetensors.
    """
    from huggingface_hub import snapshot_download
    from transformers import AutoConfig

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return []
    if getattr(AutoConfig.from_pretrained(path), "quantization_config", None) is not None:
        return []
    folder = Path(path)
    if not folder.is_dir():
        folder = Path(snapshot_download(path, allow_patterns=["model*.safetensors", _INDEX]))
    if (single := folder / _SINGLE).exists():  # first, as in transformers
        return [single]
    if (index := folder / _INDEX).exists():
        return [folder / name for name in sorted(set(msgspec.json.decode(index.read_bytes())["weight_map"].values()))]
    return []


def load_sharded(config: ModelConfig, files: list[Path], build: Callable[[Any], ActorCritic]) -> ActorCritic:
    """Return the sharded network that ``build`` makes of the model in ``files``. All ranks must call it."""
    from transformers import AutoConfig

    settings = AutoConfig.from_pretrained(config.path)
    source = _Checkpoint(empty_model(config, settings), files)
    model = empty_model(config, settings)
    model._weight_conversions = source.used_conversions  # so that weights are written under the names of this checkpoint
    network = build(hollow(model))
    _on_meta(network)
    drawn = {name: tensor.detach().clone() for name, tensor in _tensors(network) if tensor.device.type != "meta"}
    shard(network)
    network.to_empty(device=config.device)
    network.language_model.tie_weights()  # ``to_empty`` gives each name a tensor of its own
    places = {_plain(name): tensor for name, tensor in _tensors(network)}
    with torch.no_grad():
        for name, tensor in _tensors(network):
            if name in drawn:
                _keep_rows(tensor, drawn.pop(name))
        filled = source.fill(places)
    kept = network.language_model.state_dict().keys()
    missing = {_plain(f"model.{name}") for name in kept if ".lora_" not in name} - filled
    missing -= {_plain(f"model.{name}") for name in network.language_model.all_tied_weights_keys}
    if missing:
        raise Unsupported(f"{config.path} lacks {len(missing)} tensors of its model, such as {min(missing)}")
    return network


def _tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from network.named_parameters()
    yield from network.named_buffers()


def _plain(name: str) -> str:
    """The name of a tensor of the network in the transformers model, without the wrappers of PEFT."""
    return name.removeprefix("model.").removeprefix("base_model.model.").replace(".base_layer", "")


def _keep_rows(tensor: Tensor, full: Tensor) -> None:
    rows, first = local_rows(tensor)
    rows.copy_(full if not rows.dim() else full[first : first + len(rows)])


# ------------------------------------------------------------------------------------------------------- without memory


def empty_model(config: ModelConfig, settings: Any) -> Any:
    """Return the model of the transformers configuration ``settings`` without memory for its parameters.

    Its buffers are real: their values are computed, not stored.
    """
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(settings, dtype=torch.float32, attn_implementation=config.attention)


def hollow(model: Any) -> Any:
    """Give all parameters of ``model`` a single number as memory: on the CPU, PEFT draws adapters beside them for real."""
    replace_parameters(model, lambda p: p.device.type == "meta", lambda p: torch.zeros(()).expand(p.shape))
    return model


def _on_meta(network: ActorCritic) -> None:
    """Undo ``hollow``, and leave everything else as it is."""

    def is_hollow(parameter: Tensor) -> bool:
        return not any(parameter.stride()) and parameter.untyped_storage().nbytes() == parameter.element_size()

    replace_parameters(network, is_hollow, lambda p: p.to("meta"))


def replace_parameters(module: Any, chosen: Callable[[Tensor], bool], make: Callable[[Tensor], Tensor]) -> None:
    """Put what ``make`` returns in the place of every ``chosen`` parameter of ``module``."""
    made: dict[int, nn.Parameter] = {}  # tied parameters stay tied
    for owner in module.modules():
        for name, old in owner._parameters.items():
            if old is not None and chosen(old):
                new = made.setdefault(id(old), nn.Parameter(make(old.detach()), requires_grad=old.requires_grad))
                owner._parameters[name] = new


# ---------------------------------------------------------------------------------------------------------------- by rows


class _Place(NamedTuple):
    """A tensor of the checkpoint."""

    file: Path
    name: str


class _Checkpoint:
    """The tensors of a checkpoint by the names that they have in ``model``, which has no memory."""

    def __init__(self, model: Any, files: list[Path]) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping

        self._model = model
        self._mapping: Any = get_model_conversion_mapping(model)
        self._renamed: dict[str, _Place] = {}
        self._fused: dict[str, list[_Place]] = defaultdict(list)
        parameters = model.state_dict()
        for path in files:
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
            for name in names:
                target, fused = self._target(name, parameters)
                if target in parameters and fused:
                    self._fused[target].append(_Place(path, name))
                elif target in parameters:
                    self._renamed[target] = _Place(path, name)
        for alias, source in model.all_tied_weights_keys.items():  # one tensor, which some checkpoints store twice
            if (stored := self._renamed.pop(alias, None)) is not None:
                self._renamed.setdefault(source, stored)

    @property
    def used_conversions(self) -> list[Any]:
        """What transformers must undo when it writes the tensors of the model."""
        return [conversion for conversion in self._mapping if conversion.was_used()]

    def fill(self, tensors: Mapping[str, Tensor]) -> set[str]:
        """Copy this rank's rows into ``tensors``; return the names for which the checkpoint has values."""
        filled = set()
        for target, source in self._renamed.items():
            rows, first = local_rows(tensors[target])
            # Opened for each tensor: an open file keeps all pages that were read in memory.
            with safe_open(source.file, framework="pt") as file:
                stored = file.get_slice(source.name)
                rows.copy_(stored[first : first + len(rows)] if rows.dim() else stored[...])
            filled.add(target)
        for target, places in self._fused.items():
            for name, full in self._converted(target, places).items():
                _keep_rows(tensors[name], full)
                filled.add(name)
        return filled

    def _target(self, name: str, parameters: dict[str, Tensor]) -> tuple[str, bool]:
        """The name in the model of what the checkpoint calls ``name``, and whether it is fused with others."""
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        renamings = [conversion for conversion in self._mapping if isinstance(conversion, WeightRenaming)]
        converters = [conversion for conversion in self._mapping if isinstance(conversion, WeightConverter)]
        prefix = self._model.base_model_prefix
        target, pattern = rename_source_key(name, renamings, converters, prefix, parameters)
        if target not in parameters and name in parameters:
            return name, False
        return target, pattern is not None

    def _converted(self, target: str, places: list[_Place]) -> dict[str, Tensor]:
        """The tensors that transformers makes of those at ``places``."""
        from transformers.core_model_loading import convert_and_load_state_dict_in_model
        from transformers.modeling_utils import LoadStateDictConfig

        read: dict[str, Tensor] = {}
        for source in places:
            with safe_open(source.file, framework="pt") as file:
                read[source.name] = file.get_tensor(source.name)
        settings = LoadStateDictConfig(dtype=torch.float32, weight_mapping=self._mapping)
        convert_and_load_state_dict_in_model(model=self._model, state_dict=read, load_config=settings)
        made = {name: p.detach() for name, p in self._model.named_parameters() if p.device.type != "meta"}
        if target not in made:
            raise Unsupported(f"transformers cannot make {target} of {places[0].name} and {len(places) - 1} other tensors")
        replace_parameters(self._model, lambda p: p.device.type != "meta", lambda p: p.to("meta"))
        return made
