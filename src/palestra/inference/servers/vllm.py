"""vLLM over HTTP: token ids in, token ids and log-probs out, through ``/v1/completions``.

Start the server with ``VLLM_SERVER_DEV_MODE=1`` to update weights, with ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`` and
``--enable-lora`` to load adapters, with ``--enable-sleep-mode`` to let it sleep, and with ``--logprobs-mode
processed_logprobs`` to sample at a temperature other than 1: only then do its log-probs belong to the distribution that it
samples from. Before the engine samples at another temperature, it checks the server's mode, and refuses if it is the wrong one.

**Every request sets every field that shapes the distribution or ends a reply**, neutral ones included. vLLM takes missing
fields from the model's ``generation_config.json`` (Qwen2.5-Instruct sets a repetition penalty of 1.05 there) and then samples
from another distribution than the recorded one. The end-of-text ids of that file would end a reply as well, so ``ignore_eos``
leaves ``stop_token_ids`` as the only ids that do.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from palestra.core import Sampling
from palestra.errors import PolicyError, UsageError
from palestra.foundation.encoding import Ints
from palestra.inference.servers.collective import Invitation, Send, WeightBucket, while_sending
from palestra.inference.servers.remote import RemoteEngine, same_ids
from palestra.inference.servers.replica import LoraAdapter, SampledPart, ServerReplica
from palestra.trajectory import Finish

__all__ = ["VLLMEngine", "completion_request"]

_NO_ROUTE = '"detail":"Not Found"'
"""What vLLM answers at a path that it does not serve. Its other answers with 404 name what was not found."""
_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": None}


class VLLMEngine(RemoteEngine):
    """Sample through vLLM servers."""

    unique_id = True

    def __init__(self, urls: str | Sequence[str], **options: Any) -> None:
        super().__init__(urls, **options)
        self._processed: dict[ServerReplica, bool] = {}
        """Server → whether its log-probs are those of the processed distribution. Only for servers that were asked."""

    async def _sample(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> SampledPart:
        if _reshapes(sampling) and not await self._processes(replica):
            raise UsageError(
                f"{replica.url} reports log-probs before temperature, top_p and top_k, so with temperature "
                f"{sampling.temperature:g}, top_p {sampling.top_p:g} and top_k {sampling.top_k} they are not those of what was "
                f"sampled: start the server with --logprobs-mode processed_logprobs, or sample at temperature 1 without cuts"
            )
        answer = await self._complete(replica, prompt, sampling)
        try:
            (choice,) = answer["choices"]
            ids, echoed, finish = choice["token_ids"], choice["prompt_token_ids"], _FINISH[choice["finish_reason"]]
            logprobs = choice["logprobs"]["token_logprobs"] if ids else []
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(
                f"{replica.url} did not answer with token ids and log-probs ({error!r}): the engine needs vLLM 0.10 or newer"
            ) from error
        if not same_ids(echoed, prompt):
            raise PolicyError(
                f"{replica.url} sampled after a prompt of {len(echoed)} ids that differs from the {len(prompt)} ids sent"
            )
        return SampledPart(ids, logprobs, finish)

    async def _complete(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> Any:
        request = completion_request(replica.adapter or self.model, prompt, sampling)
        return await self._post(replica, "/v1/completions", request)

    async def score(self, ids: Ints) -> npt.NDArray[np.float64]:
        """Return the log-probability of each of ``ids`` after those before it, at temperature 1; that of the first is NaN.

        Raises:
            InfrastructureError: No server answered.
            PolicyError: A server did not return the log-probabilities of the prompt.

        """
        prompt = ids.tolist()

        async def ask(replica: ServerReplica) -> Any:
            request = completion_request(self.model, prompt, Sampling(1)) | {"prompt_logprobs": 0}
            return await self._post(replica, "/v1/completions", request)

        replica, answer = await self._answered(ask)
        try:
            logprobs = answer["choices"][0]["prompt_logprobs"]
            return np.array([np.nan, *(logprobs[n][str(prompt[n])]["logprob"] for n in range(1, len(prompt)))])
        except (KeyError, TypeError, IndexError) as error:
            raise PolicyError(f"{replica.url} did not answer with the log-probs of the prompt: {error!r}") from error

    async def _processes(self, replica: ServerReplica) -> bool:
        """Whether the server's log-probs are those of the distribution after temperature, top_k and top_p."""
        if replica not in self._processed:
            chances = []
            for temperature in (1.0, 0.5):
                answer = await self._complete(replica, [1, 2, 3], Sampling(1, temperature, top_k=1))
                chances.append(answer["choices"][0]["logprobs"]["token_logprobs"][0])
            # Cut to its most likely token, a processed distribution gives that token the log-prob 0.
            self._processed[replica] = all(abs(chance) < 1e-6 for chance in chances)
        return self._processed[replica]

    async def _pause(self, replica: ServerReplica) -> None:
        await self._post(replica, "/pause?mode=abort")

    async def _resume(self, replica: ServerReplica) -> None:
        await self._post(replica, "/resume")

    async def _sleep(self, replica: ServerReplica, *, keep_weights: bool) -> None:
        try:
            await self._post(replica, f"/sleep?level={1 if keep_weights else 2}", decode=False)
        except PolicyError as error:
            raise PolicyError(
                f"{replica.url} does not sleep: start vLLM with --enable-sleep-mode, and with the environment variable "
                f"VLLM_SERVER_DEV_MODE=1 ({error})"
            ) from None

    async def _sleeps(self, replica: ServerReplica) -> bool:
        try:
            return bool((await self._get(replica, "/is_sleeping"))["is_sleeping"])
        except (PolicyError, KeyError, TypeError):  # a server without VLLM_SERVER_DEV_MODE=1 has no sleep
            return False

    async def _wake(self, replica: ServerReplica, part: Literal["weights", "kv_cache"]) -> None:
        await self._post(replica, f"/wake_up?tags={part}", decode=False)

    async def _load(self, replica: ServerReplica, folder: str) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._post(replica, "/collective_rpc", body)

    async def workers(self, replica: ServerReplica) -> int:
        return int((await self._get(replica, "/get_world_size"))["world_size"])

    async def join_group(self, replica: ServerReplica, invitation: Invitation) -> None:
        meeting: dict[str, Any] = {"master_address": invitation.address, "master_port": invitation.port}
        info = {
            **({"nccl_unique_id_b64": invitation.key} if invitation.key else meeting),
            "rank_offset": 1,
            "world_size": invitation.size,
            "packed": True,
            "packed_buffer_size_bytes": invitation.bucket,
            "packed_num_buffers": 2,
        }
        await self._post(replica, "/init_weight_transfer_engine", {"init_info": info}, decode=False)

    async def receive(self, replica: ServerReplica, buckets: Sequence[WeightBucket], send: Send) -> None:
        """One call for all buckets: the server divides the tensors into buckets by the rule of the learner."""
        info = {
            "names": [name for bucket in buckets for name in bucket.names],
            "dtype_names": [dtype for bucket in buckets for dtype in bucket.dtypes],
            "shapes": [shape for bucket in buckets for shape in bucket.shapes],
        }

        async def send_all() -> None:
            for bucket in buckets:
                await send(bucket, False)

        await self._post(replica, "/start_weight_update", decode=False)
        await while_sending(self._post(replica, "/update_weights", {"update_info": info}, decode=False), send_all())
        await self._post(replica, "/finish_weight_update", decode=False)

    async def _load_adapter(self, replica: ServerReplica, adapter: LoraAdapter) -> None:
        with suppress(PolicyError):  # vLLM refuses a second adapter of the same name
            await self._unload_adapter(replica, adapter.name)
        body = {"lora_name": adapter.name, "lora_path": adapter.folder}
        try:
            await self._post(replica, "/v1/load_lora_adapter", body, decode=False)
        except PolicyError as error:
            if _NO_ROUTE not in str(error):
                raise
            raise PolicyError(
                f"{replica.url} does not load adapters: start vLLM with --enable-lora, and with the environment variable "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            ) from None

    async def _unload_adapter(self, replica: ServerReplica, name: str) -> None:
        await self._post(replica, "/v1/unload_lora_adapter", {"lora_name": name}, decode=False)


def completion_request(model: str, prompt: list[int], sampling: Sampling) -> dict[str, Any]:
    """Return the body of a ``/v1/completions`` call: the values of ``sampling``, and neutral values for all other fields."""
    return {
        "model": model,
        "prompt": prompt,
        "n": 1,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,
        "min_tokens": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": None,
        "bad_words": [],
        "watermarking": False,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
    }


def _reshapes(sampling: Sampling) -> bool:
    """Whether ``sampling`` uses another distribution than the model's own softmax."""
    return sampling.temperature != 0 and (sampling.temperature != 1 or sampling.top_p < 1 or sampling.top_k > 0)
