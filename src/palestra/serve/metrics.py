"""The counters of a server, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter

__all__ = ["Metrics"]

_BOUNDS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


class Metrics:
    """Plain counters. Counting costs one addition; the text is made on request."""

    def __init__(self) -> None:
        self.opened = 0
        self.resumed = 0
        self.expired = 0
        self.repeated = 0
        self.refused = 0
        self.evicted = 0
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.http: Counter[str] = Counter()
        self.seconds = 0.0
        self._buckets = [0] * (len(_BOUNDS) + 1)

    def called(self, verb: str, seconds: float) -> None:
        """Count one call and its duration."""
        self.calls[verb] += 1
        self.seconds += seconds
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1

    def text(self, gauges: dict[str, float]) -> str:
        """Return all counters and ``gauges`` as text."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE palestra_{name} gauge", f"palestra_{name} {value:g}"]
        counters = {
            "sessions_opened": self.opened,
            "sessions_resumed": self.resumed,
            "sessions_expired": self.expired,
            "calls_repeated": self.repeated,
            "connections_refused": self.refused,
            "connections_evicted": self.evicted,
        }
        for name, value in counters.items():
            lines += [f"# TYPE palestra_{name}_total counter", f"palestra_{name}_total {value}"]
        labeled = (("calls", "verb", self.calls), ("faults", "code", self.faults), ("http_answers", "status", self.http))
        for name, label, counts in labeled:
            lines.append(f"# TYPE palestra_{name}_total counter")
            lines += [f'palestra_{name}_total{{{label}="{key}"}} {count}' for key, count in sorted(counts.items())]
        return "\n".join([*lines, *self._histogram()]) + "\n"

    def _histogram(self) -> list[str]:
        lines, total = ["# TYPE palestra_call_seconds histogram"], 0
        for bound, count in zip((*(f"{bound:g}" for bound in _BOUNDS), "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'palestra_call_seconds_bucket{{le="{bound}"}} {total}')
        return [*lines, f"palestra_call_seconds_sum {self.seconds:.6f}", f"palestra_call_seconds_count {total}"]
