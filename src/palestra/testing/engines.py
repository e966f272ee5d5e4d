"""The conformance suite of engines: checks that any engine must pass, ours or one that you wrote.

::

    case = EngineCase(engine, prompt=ints([5, 6, 7]), weights=new_weights)
    problems = [result for result in await conformance(case) if result.problem]

A check reports whether the engine keeps the contract of ``palestra.core.Engine``. It does not report whether the log-probs are
those of the model: compare them with a separate forward pass for that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np

from palestra.core import Engine, EngineSession, Generation, Sampling
from palestra.errors import PalestraError
from palestra.foundation.encoding import Ints, ints
from palestra.testing.conformance import ConformanceResult, expect, run_checks
from palestra.trajectory import Finish

__all__ = ["CHECKS", "EngineCase", "EngineCheck", "conformance"]

TIMEOUT = 30.0
"""Seconds after which a request that should have ended counts as lost."""


class EngineCase(NamedTuple):
    """An open engine and what the checks need to use it."""

    engine: Engine
    prompt: Ints
    """Ids that the model accepts, at least one. The engine must be able to sample at least 8 tokens after them."""
    weights: Any = None
    """What ``update_weights`` accepts."""


EngineCheck = Callable[[EngineCase], Awaitable[None]]


async def conformance(case: EngineCase) -> list[ConformanceResult]:
    """Run every check on the engine. It stays open."""
    return await run_checks(CHECKS, case)


async def _sample(case: EngineCase, sampling: Sampling, prompt: Ints | None = None, session: Any = None) -> Generation:
    async with asyncio.timeout(TIMEOUT):
        return await case.engine.generate(case.prompt if prompt is None else prompt, sampling, session)


async def returns_the_prompt_and_new_ids(case: EngineCase) -> None:
    """The prompt comes back unchanged, and the sampled ids stand apart from it."""
    tokens, _ = await _sample(case, Sampling(4, seed=1))
    expect(tokens.prompt.tolist() == case.prompt.tolist(), "the prompt as it was sent", tokens.prompt.tolist())
    expect(1 <= len(tokens.ids) <= 4, "1 to 4 sampled ids", tokens.ids.tolist())
    expect(bool((tokens.ids >= 0).all()), "ids that are not negative", tokens.ids.tolist())


async def gives_every_id_a_logprob(case: EngineCase) -> None:
    """Each sampled id has a finite log-prob, which is at most 0."""
    tokens, _ = await _sample(case, Sampling(8, seed=1))
    expect(len(tokens.logprobs) == len(tokens.ids), f"{len(tokens.ids)} log-probs", tokens.logprobs.tolist())
    fine = np.isfinite(tokens.logprobs).all() and (tokens.logprobs <= 1e-6).all()
    expect(bool(fine), "finite log-probs of at most 0", tokens.logprobs.tolist())


async def stops_at_the_token_limit(case: EngineCase) -> None:
    """A completion that reaches ``max_tokens`` ends there, and reports ``LENGTH``."""
    tokens, finish = await _sample(case, Sampling(1, seed=1))
    expect(len(tokens.ids) == 1, "one token", tokens.ids.tolist())
    whole, _ = await _sample(case, Sampling(8, seed=1))
    expect(finish is Finish.LENGTH or len(whole.ids) == 1, "the finish 'length'", finish)


async def stops_at_a_stop_id(case: EngineCase) -> None:
    """Sampling ends with a stop id, which is the last of the sampled ids, and reports ``STOP``."""
    free = (await _sample(case, Sampling(8, temperature=0.0, seed=1))).tokens.ids.tolist()
    stop = free[len(free) // 2]
    tokens, finish = await _sample(case, Sampling(8, temperature=0.0, seed=1, stop_ids=(stop,)))
    expect(tokens.ids.tolist() == free[: free.index(stop) + 1], f"the ids up to {stop}", tokens.ids.tolist())
    expect(finish is Finish.STOP, "the finish 'stop'", finish)


async def repeats_a_seed(case: EngineCase) -> None:
    """The same seed gives the same ids."""
    first, second = [(await _sample(case, Sampling(8, seed=3))).tokens.ids.tolist() for _ in range(2)]
    expect(first == second, f"the ids {first} again", second)


async def answers_many_at_once(case: EngineCase) -> None:
    """Concurrent requests all end, each with the answer to its own prompt."""
    prompts = [ints(np.concatenate([case.prompt, np.full(extra, case.prompt[-1])])) for extra in range(16)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_sample(case, Sampling(4, seed=n), prompt)) for n, prompt in enumerate(prompts)]
    returned = [task.result().tokens.prompt.tolist() for task in tasks]
    expect(returned == [prompt.tolist() for prompt in prompts], "each prompt with its own request", returned)
    expect(all(len(task.result().tokens.ids) for task in tasks), "sampled ids in every answer", returned)


async def continues_a_session(case: EngineCase) -> None:
    """A session's second turn, whose prompt extends the first, gives what the same prompt gives without a session."""
    session = EngineSession()
    first = (await _sample(case, Sampling(4, temperature=0.0, seed=1), session=session)).tokens
    longer = ints(np.concatenate([first.prompt, first.ids, case.prompt]))
    kept = (await _sample(case, Sampling(4, temperature=0.0, seed=2), longer, session)).tokens
    fresh = (await _sample(case, Sampling(4, temperature=0.0, seed=2), longer)).tokens
    expect(kept.ids.tolist() == fresh.ids.tolist(), f"the ids {fresh.ids.tolist()}", kept.ids.tolist())


async def keeps_to_the_context_length(case: EngineCase) -> None:
    """Prompt and sampled ids together never exceed ``context_length``: the engine stops earlier or refuses."""
    limit = case.engine.context_length
    expect(limit > len(case.prompt), f"a context_length above {len(case.prompt)}", limit)
    prompt = ints(np.resize(case.prompt, limit - 2))
    try:
        tokens, _ = await _sample(case, Sampling(64, seed=1), prompt)
    except PalestraError:
        return  # refused, with a message for the user
    total = len(tokens.prompt) + len(tokens.ids)
    expect(total <= limit, f"at most {limit} ids in all", total)


async def waits_while_paused(case: EngineCase) -> None:
    """A paused engine answers no new request; ``resume`` lets the request end."""
    await case.engine.pause()
    request = asyncio.create_task(_sample(case, Sampling(2, seed=1)))
    try:
        done, _ = await asyncio.wait({request}, timeout=0.05)
        expect(not done, "no answer while the engine is paused", done)
    finally:
        await case.engine.resume()
        tokens, _ = await request
    expect(1 <= len(tokens.ids) <= 2, "1 or 2 sampled ids after resume", tokens.ids.tolist())


async def stamps_versions(case: EngineCase) -> None:
    """What is sampled after ``update_weights`` carries the new version. A request under way finishes, in order of versions."""
    before = (await _sample(case, Sampling(1, seed=1))).tokens.version
    request = asyncio.create_task(_sample(case, Sampling(8, seed=1)))
    await asyncio.sleep(0)
    await case.engine.update_weights(case.weights, before + 1)
    during = (await request).tokens
    versions = [during.version, *(version for _, version in during.updates)]
    expect(versions in ([before], [before + 1], [before, before + 1]), f"versions {before}, {before + 1}", versions)
    after = (await _sample(case, Sampling(2, seed=1))).tokens
    expect((after.version, len(after.updates)) == (before + 1, 0), f"version {before + 1}", after.version)


async def survives_a_cancelled_request(case: EngineCase) -> None:
    """A cancelled request ends at once, and the engine answers the next one."""
    request = asyncio.create_task(case.engine.generate(case.prompt, Sampling(8)))
    await asyncio.sleep(0)
    request.cancel()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.wait({request})
    expect(request.cancelled() or request.exception() is None, "a cancelled request", request)
    expect(len((await _sample(case, Sampling(2, seed=1))).tokens.ids) > 0, "an answer after the cancellation", "none")


CHECKS: tuple[EngineCheck, ...] = (
    returns_the_prompt_and_new_ids,
    gives_every_id_a_logprob,
    stops_at_the_token_limit,
    stops_at_a_stop_id,
    repeats_a_seed,
    answers_many_at_once,
    continues_a_session,
    keeps_to_the_context_length,
    waits_while_paused,
    stamps_versions,
    survives_a_cancelled_request,
)
