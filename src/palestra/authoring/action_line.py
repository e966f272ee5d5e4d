"""Which line of a reply is the action: one rule for all worlds whose actions are lines of text.

1. If the reply contains ``Action:``, the action follows the last one, on the same line or else on the next line with words.
2. Otherwise the action is the last line with words.

So a model may think before its action in any case, and after it only if it writes ``Action:``. Upper and lower case do not
matter for the word, and Markdown may surround it: ``**Action**: look``. Quotation marks, brackets and marks of Markdown around
the action are removed, and so are periods and exclamation marks. A line that consists of such marks, as the fence of a code
block does, has no words.

The ids with ``-agentgym`` keep the rule of AgentGym where it differs: see ``palestra.worlds.craft.commands``.
"""

import re

__all__ = ["action_line"]

_LABEL = re.compile(r"\baction[\s*_`]*:", re.IGNORECASE)
_EDGES = (
    "\"'`*_.!<>[]"
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Marks and white space around an action. All white space is listed, so that one ``strip`` removes both in linear time."""


def action_line(reply: str, keep: str = "") -> str:
    """Return the action in ``reply`` with single spaces between its words; empty if there is none.

    Args:
        reply: The whole message.
        keep: Marks that belong to actions here, and are not removed: ``[]`` in ``click [e5]``.
    """
    edges = _EDGES.translate(str.maketrans("", "", keep)) if keep else _EDGES
    ends = [label.end() for label in _LABEL.finditer(reply)]
    lines = (reply[ends[-1] :] if ends else reply).strip(edges).splitlines()
    if not lines:
        return ""
    # The text begins and ends with a word now, so its first and its last line have words.
    return " ".join(lines[0 if ends else -1].split()).strip(edges)
