"""Writes trajectories in the formats of other projects, and reads them.

====================  ================================================================  =============================
format                what it is                                                        what it keeps
====================  ================================================================  =============================
``parquet``           Apache Parquet, one row per episode, typed and nested columns     everything, to the bit
``openai``            JSONL for OpenAI's fine-tuning API, which most trainers read      the conversation
``preferences``       JSONL of prompt, chosen and rejected, for DPO; written only       two conversations and a margin
``inspect``           a log of Inspect (UK AI Security Institute, MIT), version 2       conversation, scores, usage
``atif``              Agent Trajectory Interchange Format 1.7 (Harbor, Apache-2.0)      conversation, rewards, usage,
                                                                                        sampled ids and log-probs
====================  ================================================================  =============================

Every writer takes an iterable of trajectories, and every reader yields them. The selection of episodes (solved ones for
imitation, pairs for preferences) is a step of its own, in ``selection``, that knows nothing of formats.
"""

from palestra.interchange.atif import read_atif, write_atif
from palestra.interchange.dialogue import messages_of
from palestra.interchange.inspect_log import LogHeader, inspect_name, read_inspect, write_inspect
from palestra.interchange.openai import read_openai, write_openai
from palestra.interchange.parquet import read_parquet, write_parquet
from palestra.interchange.preferences import write_preferences

__all__ = [
    "LogHeader",
    "inspect_name",
    "messages_of",
    "read_atif",
    "read_inspect",
    "read_openai",
    "read_parquet",
    "write_atif",
    "write_inspect",
    "write_openai",
    "write_parquet",
    "write_preferences",
]
