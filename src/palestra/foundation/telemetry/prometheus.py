"""Prometheus's text format: what the server, the gateway and training runs answer to ``GET /metrics``.

Counting costs one addition; the text is made on request.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

__all__ = ["CONTENT_TYPE", "Histogram", "metric"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


def metric(name: str, kind: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    """Return the lines of one metric: its type, and a line per set of labels."""
    return [f"# TYPE {name} {kind}", *(_line(name, labels, value) for labels, value in samples)]


class Histogram:
    """Durations in seconds, counted in buckets."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._buckets = [0] * (len(_BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._seconds += seconds
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1

    def lines(self, name: str) -> list[str]:
        """Return the lines of the histogram."""
        lines, total = [f"# TYPE {name} histogram"], 0
        for bound, count in zip((*(f"{bound:g}" for bound in _BOUNDS), "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(_line(f"{name}_bucket", {"le": bound}, total))
        return [*lines, f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = f"{value:d}" if isinstance(value, int) else repr(float(value))  # every digit
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
