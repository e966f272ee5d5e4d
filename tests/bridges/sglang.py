"""A server that speaks SGLang's ``/generate``, with the scripted model, for the trainers that sample over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.answering import answering
from tests.bridges.bridging import Speller


@asynccontextmanager
async def sglang(tokenizer: Any) -> AsyncIterator[str]:
    """Serve ``Speller``. Yields the address."""
    model = Speller(tokenizer)

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        params = body["sampling_params"]
        ids, logprobs, stopped, _ = model(body["input_ids"], params["max_new_tokens"])
        meta = {
            "finish_reason": {"type": "stop" if stopped else "length"},
            "output_token_logprobs": [[logprob, one, None] for one, logprob in zip(ids, logprobs, strict=True)],
            "completion_tokens": len(ids),
            "weight_version": "4",
        }
        text = tokenizer.decode(ids, skip_special_tokens=params.get("skip_special_tokens", True))
        return web.json_response({"text": text, "meta_info": meta})

    async with answering(generate, "/generate") as url:
        yield url
