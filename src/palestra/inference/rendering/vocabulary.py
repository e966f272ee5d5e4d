"""``vocabulary.json``: the text of every token id, beside trajectories with token ids, so that the viewer can show them."""

from typing import Any

import msgspec

from palestra.durable import Inside, write_whole
from palestra.foundation.encoding import clean_text

__all__ = ["VOCABULARY", "write_vocabulary"]

VOCABULARY = "vocabulary.json"


def write_vocabulary(folder: Inside, tokenizer: Any) -> None:
    """Write the text of every id of ``tokenizer`` into ``folder``, unless the file exists."""
    file = folder / VOCABULARY
    if not file.exists():
        texts = [clean_text(tokenizer.decode([token])) for token in range(len(tokenizer))]
        write_whole(file, msgspec.json.encode(texts))
