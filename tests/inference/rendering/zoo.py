"""Tokenizers and templates to test renderers on. Built here, in milliseconds; SmolLM2's own comes from a file.

``published`` gives the chat templates that model makers publish, as the package trl carries them.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from palestra.errors import MissingExtra
from palestra.inference.models import fetch_smollm2

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ 'ipython' if m['role'] == 'tool' else m['role'] }}"
    "<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# The habit of Qwen3, in our words: thinking is shown only after the last question of the user.
QWEN3 = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{% if m['role'] == 'assistant' %}<|im_start|>assistant\n"
    "{% if loop.index0 > ns.last and m.get('reasoning_content') %}<think>\n{{ m['reasoning_content'] }}\n</think>\n\n"
    "{% endif %}{{ m['content'] }}<|im_end|>\n"
    "{% elif m['role'] == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m['content'] }}\n"
    "</tool_response><|im_end|>\n{% else %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# No role "tool", and the assistant's turn closes with the end-of-text token.
PLAIN = (
    "{% for m in messages %}{% if m['role'] not in ['system', 'user', 'assistant'] %}{{ raise_exception('no such role') }}"
    "{% endif %}"
    "{% if m['role'] == 'assistant' %}Bot: {{ m['content'] }}</s>{% else %}{{ m['role'] }}: {{ m['content'] }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}Bot: {% endif %}"
)
CHATML_SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
CHATML_SPECIALS += ["<tool_response>", "</tool_response>"]
LLAMA3_SPECIALS = [
    "<|end_of_text|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
]
TEXT = [
    "You are playing Guess The Number. Find the hidden number between 1 and 50 within 7 turns.",
    "At turn 3, you guessed 12, and the number is higher than 12. user assistant system tool_response",
    'Give your guess inside \\boxed{}, for example \\boxed{2}. {"name": "python", "arguments": {"code": "print(1)"}}',
]


def wrapped(tokenizer: Tokenizer, template: str, specials: list[str], eos: str) -> Any:
    """Return the tokenizer as transformers has it, with a chat template."""
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos)
    fast.add_special_tokens({"additional_special_tokens": [token for token in specials if token != eos]})
    fast.chat_template = template
    return fast


def _bpe(template: str, specials: list[str], eos: str) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return wrapped(tokenizer, template, specials, eos)


def _lossy() -> Any:
    """Folds case and accents: what is decoded is never what was encoded, and many ids share one text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    tokenizer.decoder = decoders.Fuse()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", *CHATML_SPECIALS], show_progress=False)
    tokenizer.train_from_iterator([text.lower() for text in TEXT], trainer)
    return wrapped(tokenizer, CHATML, CHATML_SPECIALS, "<|im_end|>")


def _bytes() -> Any:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return wrapped(tokenizer, PLAIN, ["</s>"], "</s>")


def _metaspace() -> Any:
    """Puts a space in front of every stretch of text, as the tokenizers of the first Llama and Mistral do."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", *CHATML_SPECIALS], show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return wrapped(tokenizer, CHATML, CHATML_SPECIALS, "<|im_end|>")


def published(name: str) -> str:
    """The chat template of a model family, for example ``qwen3``."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        raise MissingExtra("the published chat templates come from trl: uv pip install --group templates")
    return (Path(found.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


ZOO = {
    "chatml": lambda: _bpe(CHATML, CHATML_SPECIALS, "<|im_end|>"),
    "llama3": lambda: _bpe(LLAMA3, LLAMA3_SPECIALS, "<|eot_id|>"),
    "qwen3": lambda: _bpe(QWEN3, CHATML_SPECIALS, "<|im_end|>"),
    "qwen3published": lambda: _bpe(published("qwen3"), CHATML_SPECIALS, "<|im_end|>"),
    "lossy": _lossy,
    "bytes": _bytes,
    "metaspace": _metaspace,
}


@cache
def tokenizer(name: str) -> Any:
    """The tokenizer of this name; ``smollm2`` is the real one, read out of its package."""
    if name == "smollm2":
        return transformers.AutoTokenizer.from_pretrained(fetch_smollm2())
    return ZOO[name]()
