"""What every token id says, written beside trajectories that hold ids, so that people can read them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from palestra.encoding import clean_text
from palestra.rollout import Players

__all__ = ["VOCABULARY", "write_vocabulary"]

VOCABULARY = "vocabulary.json"


def write_vocabulary(players: Players, folder: Path) -> None:
    """Write ``vocabulary.json`` if one of ``players`` samples tokens and its tokenizer is known; once."""
    file = folder / VOCABULARY
    for player in players.values() if isinstance(players, Mapping) else [players]:
        tokenizer: Any = getattr(getattr(player, "renderer", None), "tokenizer", None)
        if tokenizer is not None and not file.exists():
            texts = [clean_text(tokenizer.decode([token])) for token in range(len(tokenizer))]
            draft = file.with_suffix(".part")
            draft.write_bytes(msgspec.json.encode(texts))
            draft.replace(file)
