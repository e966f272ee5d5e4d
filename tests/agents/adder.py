"""A tiny model that has learnt to add three numbers with a tool, in the prompts of every agent framework.

Its tokenizer is trained on these prompts, so even smolagents' long one is about a thousand tokens, and it has the chat template
of Qwen3. The model imitates episodes that a script plays through the gateway: the recorded segments are the lessons. It knows a
few questions by heart, and it can be wrong.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import transformers
from tests.agents.foreign import AGENTS, question, write
from tests.agents.witness import Witness, renderers, renderers_of
from tests.rendering.zoo import CHATML_SPECIALS, published, wrapped
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from palestra.agents import Gateway, Recording
from palestra.training.imitation import imitate
from palestra.training.learner.learner import Learner, LearnerConfig
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ModelConfig
from palestra.trajectory import StopReason, Task, Trajectory

__all__ = ["QUESTIONS", "trained_adder"]

WORDS = 1200
QUESTIONS = ((2, 3, 4), (7, 1, 5))
EPOCHS = 45


async def trained_adder() -> tuple[Any, Any]:
    """Return the model and its tokenizer."""
    texts: list[str] = []

    def overheard(prompt: str, sampling: Any) -> str:
        reply = write(prompt, sampling)
        texts.append(prompt + reply)
        return reply

    asked = [question(*numbers) for numbers in QUESTIONS]
    await _episodes(Gateway(Witness(overheard), renderers), asked[:1])
    tokenizer = _tokenizer(texts)
    lessons = await _episodes(Gateway(Witness(write, tokenizer=tokenizer), renderers_of(tokenizer)), asked)
    return _taught(tokenizer, lessons), tokenizer


async def _episodes(gateway: Gateway, questions: Iterable[str]) -> list[Recording]:
    """Let every agent answer every question."""

    async def play(name: str, asked: str) -> Recording:
        async with slots:
            episode = gateway.open()
            await AGENTS[name][0](episode, asked)
            return await gateway.close(episode)

    slots = asyncio.Semaphore(16)
    async with gateway.serving(), asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(name, asked)) for name in AGENTS for asked in questions]
    return [task.result() for task in tasks]


def _tokenizer(texts: Iterable[str]) -> Any:
    """A byte-level BPE in which every digit is a token, wherever it stands, so that the model can copy numbers."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Split(Regex(r"\d"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, initial_alphabet=alphabet, special_tokens=CHATML_SPECIALS, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return wrapped(tokenizer, published("qwen3"), CHATML_SPECIALS, "<|im_end|>")


def _taught(tokenizer: Any, lessons: Iterable[Recording]) -> Any:
    stop = tokenizer.eos_token_id
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,  # vLLM on a CPU has no smaller one
            max_position_embeddings=4096,
            initializer_range=0.05,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=stop,
            pad_token_id=stop,
        )
    )
    learner = Learner(load_model(ModelConfig("", share_prefix=True), model), LearnerConfig(learning_rate=3e-3, warmup=10))
    played = [
        Trajectory(Task("sums", seed), StopReason.TERMINATED, segments=one.played().segments)
        for seed, one in enumerate(lessons)
    ]
    imitate(learner, played, epochs=EPOCHS, minibatches=4, rng=np.random.default_rng(0))
    return model
