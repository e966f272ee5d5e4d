"""The counters of a server, in the text format of Prometheus."""

from collections import Counter

from palestra.foundation.telemetry.prometheus import Histogram, metric

__all__ = ["Metrics"]


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
        self._seconds = Histogram()

    def called(self, verb: str, seconds: float) -> None:
        """Count one call and its duration."""
        self.calls[verb] += 1
        self._seconds.observe(seconds)

    def text(self, gauges: dict[str, float]) -> str:
        """Return all counters and ``gauges`` as text."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += metric(f"palestra_{name}", "gauge", [({}, value)])
        counters = {
            "sessions_opened": self.opened,
            "sessions_resumed": self.resumed,
            "sessions_expired": self.expired,
            "calls_repeated": self.repeated,
            "connections_refused": self.refused,
            "connections_evicted": self.evicted,
        }
        for name, value in counters.items():
            lines += metric(f"palestra_{name}_total", "counter", [({}, value)])
        labeled = (("calls", "verb", self.calls), ("faults", "code", self.faults), ("http_answers", "status", self.http))
        for name, label, counts in labeled:
            lines += metric(
                f"palestra_{name}_total", "counter", [({label: key}, count) for key, count in sorted(counts.items())]
            )
        return "\n".join([*lines, *self._seconds.lines("palestra_call_seconds")]) + "\n"
