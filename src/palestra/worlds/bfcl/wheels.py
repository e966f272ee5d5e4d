"""The wheels with the leaderboard's tasks and APIs: ``palestra prefetch bfcl``."""

from palestra.authoring.wheels import Wheel, WheelSet

__all__ = ["BFCL"]

BFCL = WheelSet(
    "bfcl",
    (
        Wheel("bfcl-eval", "2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
        Wheel("mpmath", "1.3.0", "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c"),
    ),
)
