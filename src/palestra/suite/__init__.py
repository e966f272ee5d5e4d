"""Environments of one prompt or one board, in process: games, questions, reasoning, maths, code, files of data."""

from palestra.suite.mixture import Mixture, mix

__all__ = ["Mixture", "mix"]
