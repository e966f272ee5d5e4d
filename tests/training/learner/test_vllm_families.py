"""What the learner writes for servers is loaded by a real vLLM, which computes the same. ``.ci/nightly`` makes the venv.

PALESTRA_VLLM_VENV=… pytest -m vllm -s tests/training/learner/test_vllm_families.py
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.inference.servers.vllm_process import vllm_venv
from tests.training.learner.families import FAMILIES, family_model
from tests.training.tiny import learner_of

from palestra.inference.servers.publishing import PolicyWeights
from palestra.recipes.model import ModelConfig
from palestra.training.learner.loading import load_model

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]

IDS = [1, 5, 9, 33, 7, 21, 50, 12, 3, 44, 8, 60, 17, 25, 2, 31]
"""Longer than the sliding windows."""
SCORES = Path(__file__).with_name("vllm_scores.py")


CHANGES: dict[str, dict[str, Any]] = {
    # vLLM has no Qwen2 with windows in some layers, and no released Qwen2.5 uses them.
    "qwen2": {"hidden_size": 128, "use_sliding_window": False, "layer_types": ["full_attention"] * 2},
    "qwen3_next": {"linear_key_head_dim": 128, "linear_value_head_dim": 128},
}
"""What the family's configuration has differently here."""
IN_BFLOAT16 = ("qwen3_next",)
"""vLLM's linear attention on a CPU computes in bfloat16 only."""
MISSING = {"qwen3_5_text": "torchvision"}
"""vLLM cannot import its model without a package that does not fit its torch here."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per family as the learner writes it, and beside it what vLLM and transformers compute."""
    root = tmp_path_factory.mktemp("families")
    for kind in FAMILIES:
        # 32 is the smallest size of heads that vLLM's attention on a CPU knows. Qwen2's follows from its width.
        model = family_model(kind, head_dim=32, **CHANGES.get(kind, {})).to(_dtype(kind))
        model.save_pretrained(root / "checkpoints" / kind)
        learner = learner_of(network=load_model(ModelConfig(str(root / "checkpoints" / kind))))
        folder = _folder(root, kind)
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes((root / "checkpoints" / kind / "config.json").read_bytes())
        PolicyWeights(learner).write(folder, folder.name)
        with torch.no_grad():
            logprobs = model.eval()(input_ids=torch.tensor([IDS])).logits[0].float().log_softmax(-1)
        (folder / "expected.json").write_text(json.dumps([float(logprobs[at, token]) for at, token in enumerate(IDS[1:])]))
    in_process = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command: list[str | Path] = [vllm_venv() / "bin" / "python", SCORES, root / "written", json.dumps(IDS)]
    subprocess.run(command, env={**os.environ, **in_process}, check=True)
    return root


def _dtype(kind: str) -> torch.dtype:
    return torch.bfloat16 if kind in IN_BFLOAT16 else torch.float32


def _folder(root: Path, kind: str) -> Path:
    return root / "written" / kind / str(_dtype(kind)).removeprefix("torch.")


@pytest.mark.parametrize("kind", FAMILIES)
def test_vllm_computes_the_same_with_what_the_learner_wrote(kind: str, written: Path) -> None:
    folder = _folder(written, kind)
    found, expected = (json.loads((folder / name).read_text()) for name in ("scores.json", "expected.json"))
    if kind in MISSING:
        assert "failed to be inspected" in found, "vLLM can load it now: take it out of the list"
        return
    assert not isinstance(found, str), found
    worst = float(np.abs(np.array(found) - np.array(expected)).max())
    print(f"{kind}: worst token {worst:.1e} nats")
    assert worst <= (0.1 if kind in IN_BFLOAT16 else 1e-3)
