"""Palestra's environments in slime, which is on GitHub only. Written against its source of 21 August 2026 (commit 624b824).

Start slime with ``--custom-generate-function-path palestra.bridges.slime.generate``. Palestra plays on slime's SGLang
router; slime receives the sampled ids, their log-probs and the mask. The metadata of a row holds the task (``task_rows``).

A failed episode has the status ABORTED and no reward. slime's fully asynchronous rollout plays its group again. The
synchronous one does not look at the status: add ``--dynamic-sampling-filter-path
palestra.bridges.slime.keep_whole_groups``, which drops groups with a failed episode; without it slime stops at the
missing reward. An episode of several segments becomes several samples with one ``rollout_id``, and slime then normalizes
the rewards over the batch, not within groups.
"""

import copy
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

from palestra.bridges import rows
from palestra.bridges.versions import called_by, framework
from palestra.core import Renderer, Sampling
from palestra.errors import InfrastructureError
from palestra.inference.engines.calls import CallEngine, Sampled
from palestra.policies.sampled import SampledPolicy
from palestra.rollouts.verbs import play
from palestra.trajectory import FlatSegment, Task, Trajectory, flatten

__all__ = ["generate", "keep_whole_groups", "task_rows"]


def task_rows(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return one row per task for slime's data set, with ``--input-key prompt --metadata-key metadata``."""
    return [{"prompt": str(row["task"]), "metadata": row} for row in rows.task_rows(tasks)]


@called_by("slime")
async def generate(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    """Play the task of a sample. Returns the sample, or a list of samples if the episode has several segments."""
    status = _slime().Sample.Status
    policy = SampledPolicy(
        _renderer(args.hf_checkpoint),
        _engine(args, sample, sampling_params),
        Sampling(max_tokens=sampling_params["max_new_tokens"]),
    )
    member = (sample.index or 0) % max(1, args.n_samples_per_prompt)
    played = await play(rows.task_of(sample.metadata), policy, group=sample.group_index or 0, member=member)
    if played.stop.failed or not played.segments:
        sample.status, sample.reward = status.ABORTED, None
        sample.metadata = {**sample.metadata, "failure": played.failures[-1].message if played.failures else str(played.stop)}
        return sample
    ended = status.COMPLETED if played.terminated else status.TRUNCATED
    flats = flatten(played)
    blanks = [sample, *(copy.deepcopy(sample) for _ in flats[1:])]
    made = [_filled(args, blank, flat, played, ended) for blank, flat in zip(blanks, flats, strict=True)]
    return made if len(made) > 1 else made[0]


def keep_whole_groups(args: Any, group: list[Any], **_: Any) -> bool:
    """Tell slime to drop a group in which an episode has failed."""
    members = [sample for entry in group for sample in (entry if isinstance(entry, list) else [entry])]
    return all(sample.status.name != "ABORTED" for sample in members)


def _engine(args: Any, sample: Any, sampling_params: dict[str, Any]) -> CallEngine:
    post = framework("slime", "slime.utils.http_utils", "post").post
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    # One key per episode: the router keeps it on the replica that has the prefix in its cache.
    headers = {"X-SMG-Routing-Key": sample.session_id} if getattr(sample, "session_id", None) else None

    async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
        wanted = {**sampling_params, "max_new_tokens": sampling.max_tokens, "stop_token_ids": list(sampling.stop_ids)}
        payload = {"input_ids": prompt_ids, "sampling_params": wanted, "return_logprob": True}
        meta = (await post(url, payload, headers=headers))["meta_info"]
        if meta["finish_reason"]["type"] == "abort":
            raise InfrastructureError("slime aborted the request")
        logprobs, ids, *_ = zip(*meta["output_token_logprobs"], strict=True) if meta["output_token_logprobs"] else ((), ())
        version = str(meta.get("weight_version", ""))
        return Sampled(ids, logprobs, meta["finish_reason"]["type"] == "stop", int(version) if version.isdecimal() else None)

    return CallEngine(call, context_length=args.rollout_max_context_len or 32768)


def _filled(args: Any, sample: Any, flat: FlatSegment, played: Trajectory, ended: Any) -> Any:
    """Fill a sample with one segment, by the method that keeps slime's mask, log-probs and lengths together."""
    tokenizer = _tokenizer(args.hf_checkpoint)
    sample.tokens, sample.response, sample.response_length = flat.prompt.tolist(), "", 0
    sample.loss_mask = sample.rollout_log_probs = None
    for sampled, ids, logprobs in _runs(flat):
        log_probs = logprobs if sampled else None
        sample.append_response_tokens(args, tokens=ids, log_probs=log_probs, trainable=sampled, text=tokenizer.decode(ids))
    sample.reward, sample.status, sample.rollout_id = played.reward, ended, sample.index
    sample.weight_versions = [str(version) for version in sorted({int(number) for number in flat.versions if number >= 0})]
    return sample


def _runs(flat: FlatSegment) -> Iterator[tuple[bool, list[int], list[float]]]:
    """Neighbouring tokens of the response that were all sampled, or all observed."""
    tokens = zip(flat.mask.tolist(), flat.response.tolist(), flat.logprobs.tolist(), strict=True)
    for sampled, run in groupby(tokens, key=lambda token: token[0]):
        _, ids, logprobs = zip(*run, strict=True)
        yield bool(sampled), list(ids), list(logprobs)


@cache
def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    # slime has loaded it with the same setting: code in the checkpoint runs in this process already.
    return AutoTokenizer.from_pretrained(name, trust_remote_code=True)


@cache
def _renderer(name: str) -> Renderer:
    from palestra.inference.rendering import renderer_for

    return renderer_for(_tokenizer(name))


def _slime() -> Any:
    return framework("slime", "slime.utils.types", "Sample")
