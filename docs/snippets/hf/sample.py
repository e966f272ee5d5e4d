import transformers

import palestra
from palestra.core import Sampling
from palestra.inference.engines.hf import HFEngine
from palestra.inference.models import build_tiny
from palestra.inference.rendering import renderer_for
from palestra.policies.sampled import SampledPolicy
from palestra.policies.shots import OracleShots

folder = build_tiny()  # or fetch_smollm2(), or any folder that transformers can load
renderer = renderer_for(transformers.AutoTokenizer.from_pretrained(folder))
policy = SampledPolicy(renderer, HFEngine.load(folder), Sampling(max_tokens=16), shots=OracleShots(3))

for trajectory in palestra.collect("game:GuessTheNumber-v0-easy", policy, n=8, progress=False):
    for segment in trajectory.segments:
        print(trajectory.stop, len(segment.ids), "ids,", len(segment.logprobs), "of them sampled")
