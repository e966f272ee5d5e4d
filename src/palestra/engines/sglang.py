"""SGLang over HTTP: token ids in, token ids and log-probs out, through its own ``/generate``.

SGLang does not echo the prompt; the number of prompt tokens it counted is compared instead.
"""

from typing import Any

from palestra.core import Sampling
from palestra.engines.remote import Part, RemoteEngine, Replica
from palestra.errors import PolicyError
from palestra.trajectory import Finish

__all__ = ["SGLangEngine"]

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": None}


class SGLangEngine(RemoteEngine):
    """Samples through SGLang servers."""

    async def _sample(self, replica: Replica, prompt: list[int], sampling: Sampling) -> Part:
        parameters: dict[str, Any] = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "stop": list(sampling.stop),
            "stop_token_ids": list(sampling.stop_ids),
            "skip_special_tokens": False,
            "no_stop_trim": True,
        }
        if sampling.seed is not None:
            parameters["sampling_seed"] = sampling.seed
        body = {"input_ids": prompt, "sampling_params": parameters, "return_logprob": True, "logprob_start_len": -1}
        answer = await self._post(replica, "/generate", body)
        try:
            meta = answer["meta_info"]
            counted, finish = meta["prompt_tokens"], _FINISH[meta["finish_reason"]["type"]]
            drawn = [(entry[1], entry[0]) for entry in meta.get("output_token_logprobs") or ()]
        except (KeyError, TypeError, IndexError) as error:
            raise PolicyError(f"{replica.url} did not answer with token ids and log-probs: {error!r}") from None
        if counted != len(prompt):
            raise PolicyError(f"{replica.url} sampled after a prompt of {counted} ids, {len(prompt)} were sent")
        return Part([token for token, _ in drawn], [logprob for _, logprob in drawn], finish)

    async def _pause(self, replica: Replica) -> None:
        await self._post(replica, "/pause_generation", {"mode": "abort"})

    async def _resume(self, replica: Replica) -> None:
        await self._post(replica, "/continue_generation", {})

    async def _load(self, replica: Replica, source: Any) -> None:
        answer = await self._post(replica, "/update_weights_from_disk", {"model_path": str(source), "flush_cache": True})
        if not (isinstance(answer, dict) and answer.get("success")):
            raise PolicyError(f"{replica.url} did not load {source}: {answer!r}")
