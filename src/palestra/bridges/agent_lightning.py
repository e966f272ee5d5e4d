"""Palestra's environments in Agent Lightning. Tried with agentlightning 0.3.0.

``lit_agent()`` is the agent for ``Trainer.fit``. Palestra plays the episode and asks the ``LLM`` of the rollout through the
client of OpenAI, which Agent Lightning's tracer watches. If the server returns token ids and log-probs, as vLLM does, they are
in the triplets, one triplet per turn::

    trainer = agentlightning.Trainer(algorithm=…, n_runners=8)
    trainer.fit(lit_agent(max_tokens=64), train_dataset=task_rows(tasks))

The sum of the rewards is the reward of the rollout, on its last triplet: ``VERL`` reads no other one. If the episode fails, the
rollout fails and has no reward. A reply that the token limit has cut is not a move: it ends the episode.
"""

from functools import cache
from typing import Any

from palestra.bridges.rows import task_of, task_rows
from palestra.bridges.sequences import scored
from palestra.bridges.versions import framework
from palestra.core import Conversation
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.policies.chat_wire import is_overflow, wire_messages
from palestra.rollouts import play
from palestra.trajectory import Completion, Finish

__all__ = ["lit_agent", "task_rows"]

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH}


def lit_agent(*, max_tokens: int = 512, **options: Any) -> Any:
    """Return a ``LitAgent`` that plays one episode per rollout.

    Args:
        max_tokens: The token limit of one turn. It replaces that of the ``LLM``; its other ``sampling_parameters`` are sent as
            they are. Triplets have no ids or log-probs if they turn off ``logprobs`` or ``return_token_ids``.
        options: Further keywords of ``palestra.play``: ``deadline``, ``max_turns``, ``tools``, …

    Raises:
        UsageError: ``retries`` is among the options. The calls of a failed attempt would be triplets of the next one.
        MissingExtra: Agent Lightning is not installed, or a version with another interface.
    """
    if options.get("retries"):
        raise UsageError(
            "Agent Lightning plays failed rollouts again by itself: set max_attempts and retry_condition of RolloutConfig"
        )
    agl = framework("agent_lightning", "agentlightning", "rollout")
    openai = framework("agent_lightning", "openai", "APIError", "AsyncOpenAI", "DefaultAsyncHttpxClient")

    async def palestra_agent(task: Any, llm: Any) -> float:
        # No timeout of its own: the deadline of the episode holds, also while many rollouts connect at once.
        http = openai.DefaultAsyncHttpxClient(verify=_certificates(), timeout=None)
        key = llm.api_key or "none"
        async with openai.AsyncOpenAI(base_url=llm.endpoint, api_key=key, timeout=None, http_client=http) as client:
            asking = _Asking(client, openai.APIError, _wanted(llm, max_tokens))
            return scored(await play(task_of(task), asking, **options, retries=0), "Agent Lightning")

    return agl.rollout(palestra_agent)


def _wanted(llm: Any, max_tokens: int) -> dict[str, Any]:
    """Return the keywords of every call: the sampling parameters of ``llm``, beside those that fill the triplets."""
    asked = dict(llm.sampling_parameters)
    extra = {"return_token_ids": True, **(asked.pop("extra_body", None) or {})}
    return {"model": llm.model, "logprobs": True, **asked, "extra_body": extra, "max_tokens": max_tokens}


@cache
def _certificates() -> Any:
    """Return the certificates, read once: OpenAI's client would read them for every rollout, which takes 0.1 s."""
    return framework("agent_lightning", "httpx", "create_ssl_context").create_ssl_context()


class _Asking:
    """Asks the model of the rollout for every action."""

    name = "agent-lightning"

    def __init__(self, client: Any, failures: type[Exception], wanted: dict[str, Any]) -> None:
        self._client = client
        self._failures = failures
        self._wanted = wanted

    async def act(self, conversation: Conversation) -> Completion:
        messages = wire_messages(conversation.messages, native=False)
        try:
            answer = await self._client.chat.completions.create(messages=messages, **self._wanted)
        except self._failures as error:
            if is_overflow(str(error).encode()):
                return Completion("", Finish.OVERFLOW)
            raise InfrastructureError(f"Agent Lightning's model failed: {type(error).__name__}: {error}") from error
        choice = answer.choices[0]
        if choice.finish_reason not in _FINISH:
            raise PolicyError(f"Agent Lightning's model ended a reply with {choice.finish_reason!r}")
        return Completion(choice.message.content or "", _FINISH[choice.finish_reason])
