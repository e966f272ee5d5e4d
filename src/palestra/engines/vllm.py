"""vLLM over HTTP: token ids in, token ids and log-probs out, through ``/v1/completions``.

The server is started with ``VLLM_SERVER_DEV_MODE=1`` where weights are to be updated, and with
``--logprobs-mode processed_logprobs`` where the temperature is not 1: only then are its log-probs those of the distribution it
samples from. The engine finds out which mode the server is in before it samples at another temperature, and refuses.
"""

from typing import Any

from palestra.core import Sampling
from palestra.engines.remote import Part, RemoteEngine, Replica, same_ids
from palestra.errors import PolicyError, UsageError
from palestra.trajectory import Finish

__all__ = ["VLLMEngine"]

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": None}


class VLLMEngine(RemoteEngine):
    """Samples through vLLM servers."""

    _processed: bool | None = None
    """Whether log-probs are those of the tempered distribution; unknown until asked."""

    async def _sample(self, replica: Replica, prompt: list[int], sampling: Sampling) -> Part:
        if sampling.temperature not in (0.0, 1.0) and not await self._tempers(replica):
            raise UsageError(
                f"{replica.url} reports log-probs before the temperature, so at temperature {sampling.temperature:g} they are "
                f"not those of what was sampled: start the server with --logprobs-mode processed_logprobs, or sample at 1"
            )
        answer = await self._complete(replica, prompt, sampling)
        try:
            (choice,) = answer["choices"]
            ids, echoed, finish = choice["token_ids"], choice["prompt_token_ids"], _FINISH[choice["finish_reason"]]
            logprobs = choice["logprobs"]["token_logprobs"] if ids else []
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(
                f"{replica.url} did not answer with token ids and log-probs ({error!r}): is it vLLM 0.10 or newer?"
            ) from None
        if not same_ids(echoed, prompt):
            raise PolicyError(
                f"{replica.url} sampled after a prompt of {len(echoed)} ids that is not the one of {len(prompt)} sent"
            )
        return Part(ids, logprobs, finish)

    async def _complete(self, replica: Replica, prompt: list[int], sampling: Sampling) -> Any:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
            "include_stop_str_in_output": True,
            "stop": list(sampling.stop),
            "stop_token_ids": list(sampling.stop_ids),
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        return await self._post(replica, "/v1/completions", body)

    async def _tempers(self, replica: Replica) -> bool:
        if self._processed is None:
            chances = []
            for temperature in (1.0, 0.5):
                answer = await self._complete(replica, [1, 2, 3], Sampling(1, temperature, top_k=1))
                chances.append(answer["choices"][0]["logprobs"]["token_logprobs"][0])
            # Cut to its one likeliest word, a processed distribution gives that word the log-prob 0.
            self._processed = all(abs(chance) < 1e-6 for chance in chances)
        return self._processed

    async def _pause(self, replica: Replica) -> None:
        await self._post(replica, "/pause?mode=abort")

    async def _resume(self, replica: Replica) -> None:
        await self._post(replica, "/resume")

    async def _load(self, replica: Replica, source: Any) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(source)}}
        await self._post(replica, "/collective_rpc", body)
