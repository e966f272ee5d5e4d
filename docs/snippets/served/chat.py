import os

import palestra
from palestra.core import Sampling
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.policies.limits import Budget

endpoint = Endpoint("my-model", os.environ["BASE_URL"], prompt_price=0.5, completion_price=1.5)  # USD per million tokens
policy = ChatPolicy(endpoint, Sampling(max_tokens=256, temperature=0.7), budget=Budget(dollars=2.0))

for trajectory in palestra.collect("game:GuessTheNumber-v0-easy", policy, n=8, progress=False):
    print(trajectory.stop, trajectory.reward, [turn.action for turn in trajectory.turns])
print(policy.ledger)
