"""Players behind a faulty network, with accounts: every reward is checked, every step is counted on both sides."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from palestra.serve import EnvServer, RemoteEnv, ServerLimits
from palestra.serve.tokens import new_token
from palestra.testing.faults import EVEN_RATES, FaultKind, FaultProxy
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE, reward_of, told

LIMITS = ServerLimits(heartbeat=0.25, ttl=20.0)


@dataclass
class Outcome:
    """What came of it."""

    steps: int = 0
    wrong: int = 0
    """Answers that belong to another action."""
    miscounted: int = 0
    """Steps that the environment took twice or never."""
    failed: int = 0
    """Episodes that could not be saved."""
    counts: Counter[FaultKind] = field(default_factory=Counter)


async def run(
    *, faults: int, players: int, seed: int = 0, rates: dict[FaultKind, float] | None = None, env: str = REFERENCE
) -> Outcome:
    """Let ``players`` play until the given number of frames is broken and at least as many steps are taken."""
    token = new_token()
    outcome = Outcome()
    async with EnvServer(env, token, limits=LIMITS) as server:
        target = urlsplit(server.url)
        assert target.hostname is not None
        assert target.port is not None
        async with FaultProxy(target.hostname, target.port, seed=seed, rates=rates or EVEN_RATES) as proxy:
            async with asyncio.TaskGroup() as group:
                for number in range(players):
                    player = RemoteEnv(f"{proxy.url}#{env}", token=token, deadline=30.0)
                    group.create_task(_play(player, number, proxy, faults, outcome))
            outcome.counts = proxy.counts
    return outcome


async def _play(env: RemoteEnv, seed: int, proxy: FaultProxy, faults: int, outcome: Outcome) -> None:
    try:
        observation, _ = await env.reset(task=Task(REFERENCE, seed))
        outcome.wrong += observation != told(seed, 0, "")
        turn = 0
        while min(sum(proxy.counts.values()), outcome.steps) < faults:
            turn += 1
            action = f"action {turn}"
            step = await env.step(action)
            outcome.steps += 1
            outcome.miscounted += step.info["turn"] != turn
            outcome.wrong += (step.observation, step.reward) != (told(seed, turn, action), reward_of(seed, turn, action))
    except Exception:
        outcome.failed += 1
        raise
    finally:
        await env.close()
