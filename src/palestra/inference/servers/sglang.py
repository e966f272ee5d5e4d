"""SGLang over HTTP: token ids in, token ids and log-probs out, through its ``/generate``.

SGLang does not echo the prompt, so the engine compares the number of prompt tokens instead. Every request sets every sampling
parameter, neutral ones included: a server started with ``--preferred-sampling-params`` fills in those that are missing.
SGLang's ``ignore_eos`` would ignore ``stop_token_ids`` too, so it stays off. If the server stops at an end-of-text id of the
model that the request did not name, the engine continues the reply in another call.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from palestra.core import Sampling
from palestra.errors import InfrastructureError, PolicyError
from palestra.inference.servers.collective import GROUP, Invitation, Send, WeightBucket, while_sending
from palestra.inference.servers.remote import RemoteEngine
from palestra.inference.servers.replica import LoraAdapter, SampledPart, ServerReplica
from palestra.trajectory import Finish

__all__ = ["SGLangEngine", "generate_request"]

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": None}


class SGLangEngine(RemoteEngine):
    """Sample through SGLang servers."""

    unique_id = False

    async def _sample(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> SampledPart:
        request = generate_request(prompt, sampling) | ({"lora_path": replica.adapter} if replica.adapter else {})
        answer = await self._post(replica, "/generate", request)
        try:
            meta = answer["meta_info"]
            counted, finish = meta["prompt_tokens"], _finish(meta["finish_reason"], sampling)
            drawn = [(entry[1], entry[0]) for entry in meta.get("output_token_logprobs") or ()]
        except (KeyError, TypeError, IndexError) as error:
            raise PolicyError(f"{replica.url} did not answer with token ids and log-probs: {error!r}") from error
        if counted != len(prompt):
            raise PolicyError(f"{replica.url} sampled after a prompt of {counted} ids, but {len(prompt)} were sent")
        return SampledPart([token for token, _ in drawn], [logprob for _, logprob in drawn], finish)

    async def _pause(self, replica: ServerReplica) -> None:
        await self._post(replica, "/pause_generation", {"mode": "abort"})

    async def _resume(self, replica: ServerReplica) -> None:
        await self._post(replica, "/continue_generation", {})

    async def _load(self, replica: ServerReplica, folder: str) -> None:
        await self._succeed(replica, "/update_weights_from_disk", {"model_path": folder, "flush_cache": True})

    async def workers(self, replica: ServerReplica) -> int:
        return int((await self._get(replica, "/get_server_info"))["tp_size"])

    async def join_group(self, replica: ServerReplica, invitation: Invitation) -> None:
        body = {
            "master_address": invitation.address,
            "master_port": invitation.port,
            "rank_offset": 1,
            "world_size": invitation.size,
            "group_name": GROUP,
            "backend": invitation.backend,
        }
        with suppress(PolicyError, InfrastructureError):  # the group of an earlier run, or of a broken transfer
            await self._post(replica, "/destroy_weights_update_group", {"group_name": GROUP})
        await self._succeed(replica, "/init_weights_update_group", body)

    async def receive(self, replica: ServerReplica, buckets: Sequence[WeightBucket], send: Send) -> None:
        """One call per bucket, whose tensors are broadcast one by one. The last call empties the cache of prefixes."""
        for bucket in buckets:
            body = {
                "names": bucket.names,
                "dtypes": bucket.dtypes,
                "shapes": bucket.shapes,
                "group_name": GROUP,
                "flush_cache": bucket is buckets[-1],
            }
            await while_sending(self._succeed(replica, "/update_weights_from_distributed", body), send(bucket, True))

    async def _load_adapter(self, replica: ServerReplica, adapter: LoraAdapter) -> None:
        with suppress(PolicyError):  # SGLang refuses a second adapter of the same name
            await self._unload_adapter(replica, adapter.name)
        await self._succeed(replica, "/load_lora_adapter", {"lora_name": adapter.name, "lora_path": adapter.folder})

    async def _unload_adapter(self, replica: ServerReplica, name: str) -> None:
        await self._succeed(replica, "/unload_lora_adapter", {"lora_name": name})

    async def _succeed(self, replica: ServerReplica, path: str, body: dict[str, Any]) -> None:
        answer = await self._post(replica, path, body)
        if not (isinstance(answer, dict) and answer.get("success")):
            raise PolicyError(f"{replica.url}{path} refused {body}: {answer!r}")


def _finish(reason: dict[str, Any], sampling: Sampling) -> Finish | None:
    matched = reason.get("matched")
    if reason["type"] == "stop" and isinstance(matched, int) and matched not in sampling.stop_ids:
        return None
    return _FINISH[reason["type"]]


def generate_request(prompt: list[int], sampling: Sampling) -> dict[str, Any]:
    """Return the body of one call of ``/generate``: the values of ``sampling``, and neutral values for all other fields."""
    parameters: dict[str, Any] = {
        "n": 1,
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "sampling_seed": sampling.seed,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_ids),
        "stop_regex": None,
        "ignore_eos": False,
        "min_new_tokens": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": None,
        "json_schema": None,
        "regex": None,
        "ebnf": None,
        "structural_tag": None,
        "custom_params": None,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    return {"input_ids": prompt, "sampling_params": parameters, "return_logprob": True, "logprob_start_len": -1}
