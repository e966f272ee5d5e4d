"""A tiny untrained model that learns quickly, for CI and for learning curves on a laptop.

The tokenizer is a byte-level BPE trained on the text of the suite's games, so an observation is a few dozen tokens and every
number up to 100 is one token. The model is a Llama of two layers with random weights and a few hundred thousand parameters. The
same seed gives the same model, in seconds.

``words=0`` makes the smallest vocabulary in which one game can be played: each move, each number and each piece of text between
them is a token. An observation is then about ten tokens, and the vocabulary has a few dozen. That makes a learning study
possible in a minute. Such a model can read and write only the texts of its game.

``unit="word"`` makes each word of one environment a token instead, together with the space before it. In a world whose commands
repeat names of the first observation, a name is then the same token wherever it occurs, so the model can learn to copy it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from palestra.core import Env
from palestra.errors import MissingExtra, Unsupported, UsageError
from palestra.foundation.home import is_model, model_home, new_model
from palestra.foundation.installation import how_to_install
from palestra.foundation.seeding import derive_seed
from palestra.registry import EnvSpec, list_envs, make, spec
from palestra.trajectory import text_of

__all__ = ["END", "UNKNOWN", "WORDS", "build_tiny"]

_Unit = Literal["phrase", "word"]

MOST_PARAMETERS = 1_000_000
_ROLES = ("system", "user", "assistant", "tool")
END = "<|end|>"
UNKNOWN = "<|unknown|>"
_SPECIALS = [END, *(f"<|{role}|>" for role in _ROLES)]
_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_NUMBERS = 101
_ATOMS = r"\\boxed\{[^{}]+\}|\d+"
"""What is always one token in a vocabulary of phrases."""
WORDS = r" ?\b\d [^\W\d_]+| ?[^\W\d_]+| ?\d|[\s\S]"
"""The same in a vocabulary of words: a word, a digit, or both together, with the space before; otherwise a character."""
_TASKS = 8
"""Episodes of each game that the tokenizer learns from."""
_PHRASE_TASKS = 256
"""The same for a tokenizer of phrases, which must have seen every text of the game."""
_TURNS = 12
_PHRASE_TURNS = 64


def build_tiny(
    folder: Path | None = None,
    *,
    envs: str = "game:*",
    words: int = 1024,
    unit: _Unit = "phrase",
    width: int = 64,
    layers: int = 2,
    seed: int = 0,
) -> Path:
    """Build a tiny model in ``folder``, unless there is one already, and return the folder.

    Args:
        folder: The folder to create; by default one in the user's cache folder.
        envs: The pattern of environments whose text the tokenizer learns; a comma separates several.
        words: The size of the vocabulary; 0 makes a vocabulary of all phrases or words of the environments.
        unit: Whether a token is a phrase or a word if ``words`` is 0.
        width: The width of the hidden layers.
        layers: The number of layers.
        seed: The seed of the weights and of the text.

    """
    folder = folder or model_home() / "tiny"
    if is_model(folder):
        return folder
    _check_packages()
    with new_model(folder) as draft:
        tokenizer = _tokenizer(envs, words, seed) if words else _whole_tokenizer(envs, unit, seed)
        _model(len(tokenizer), width, layers, seed, tokenizer.eos_token_id).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    return folder


def _check_packages() -> None:
    try:
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(f"building a model needs {error.name}: {how_to_install('hf')}") from None


def _tokenizer(envs: str, words: int, seed: int) -> Any:
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # A number is a word of its own; the space before it is not part of it.
    numbers = pre_tokenizers.Split(Regex(r"\d+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([numbers, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        special_tokens=_SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = [*_suite_text(envs, _TASKS, _TURNS, seed)]
    # Each number more often than anything else occurs, so that all of them become tokens.
    text += [" ".join(str(number) for number in range(_NUMBERS))] * (10 + max(len(text), 1))
    tokenizer.train_from_iterator(text, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.chat_template = _TEMPLATE
    return fast


def _whole_tokenizer(envs: str, unit: _Unit, seed: int) -> Any:
    """Moves, numbers and the texts between them, or words, one token each, in the order of their first occurrence."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    atoms = WORDS if unit == "word" else _ATOMS
    texts = (
        piece
        for text in _suite_text(envs, _PHRASE_TASKS, _PHRASE_TURNS, seed, unit)
        for piece in re.split(f"({atoms})", text)
        if piece
    )
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*_SPECIALS, UNKNOWN, *texts]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(atoms), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, unk_token=UNKNOWN, additional_special_tokens=_SPECIALS[1:]
    )
    fast.chat_template = _TEMPLATE
    return fast


def _model(words: int, width: int, layers: int, seed: int, stop: int) -> Any:
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=stop,
        pad_token_id=stop,
    )
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "tiny model"))
        model = transformers.LlamaForCausalLM(config)
    if model.num_parameters() > MOST_PARAMETERS:
        raise UsageError(f"{model.num_parameters():,} parameters are not tiny: at most {MOST_PARAMETERS:,}")
    return model


def _suite_text(envs: str, tasks: int, turns: int, seed: int, unit: _Unit = "phrase") -> Iterator[str]:
    """Yield the texts of the environments, and moves in them."""
    specs = [environment for pattern in envs.split(",") for environment in _representatives(pattern)]
    if not specs:
        raise UsageError(f"no environment that can run here matches {envs!r}")
    for environment in specs:
        env: Env | None = None
        with ExitStack() as stack:
            for number in range(tasks):
                if env is None or not env.unwrapped.reusable:
                    stack.close()
                    env = stack.enter_context(make(environment.id))
                # Random moves need not contain all words of good ones.
                players = ("oracle", "random") if unit == "word" and number % 2 else ("random", "oracle")
                yield from _episode_text(env, turns, derive_seed(seed, "tiny text", number), players)


def _representatives(pattern: str) -> list[EnvSpec]:
    """The environments that match ``pattern`` and can run here, one level of each family."""
    # A file of questions and a module:Class are in no list.
    matches = list_envs(pattern) or [spec(pattern)]
    return [environment for environment in matches if not environment.missing() and _is_default(environment, pattern)]


def _is_default(environment: EnvSpec, asked: str) -> bool:
    """Whether ``environment`` represents its family: it is the default level, or the requested one."""
    return not environment.levels or environment.id == asked or environment.id.endswith(environment.levels[0])


def _episode_text(env: Env, turns: int, seed: int, players: Sequence[str]) -> Iterator[str]:
    observation, _ = env.reset(seed=seed)
    yield text_of(observation)
    for _ in range(turns):
        action = _action(env, players)
        if action is None:
            return
        step = env.step(action)
        yield action
        yield text_of(step.observation)
        if step.terminated or step.truncated:
            return


def _action(env: Env, players: Sequence[str]) -> str | None:
    """Return the move of the first of ``players`` that the environment has."""
    for player in players:
        try:
            return env.oracle() if player == "oracle" else env.sample_random_action()
        except Unsupported:
            continue
    return None
