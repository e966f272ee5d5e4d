"""The counters of a gateway, in the text format of Prometheus."""

from collections import Counter

from palestra.agents.recording import Recording
from palestra.foundation.telemetry.prometheus import Histogram, metric

__all__ = ["GatewayMetrics"]


class GatewayMetrics:
    """Plain counters of episodes, answers and tokens."""

    def __init__(self) -> None:
        self.opened = 0
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds = Histogram()
        self._prompt = 0
        self._sampled = 0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count one answer. ``path`` is a path of the gateway; requests for others have one name, however many there are."""
        self._answers[path, status] += 1
        self._seconds.observe(seconds)

    def closed(self, recording: Recording) -> None:
        """Count the tokens of an episode that ended."""
        self._prompt += sum(call.prompt_tokens for call in recording.calls)
        self._sampled += sum(call.tokens for call in recording.calls)

    def text(self, episodes: int) -> str:
        """Return all counters and the number of open ``episodes`` as text."""
        answers = [({"path": path, "status": str(status)}, count) for (path, status), count in sorted(self._answers.items())]
        tokens = [({"kind": "prompt"}, self._prompt), ({"kind": "sampled"}, self._sampled)]
        lines = [
            *metric("palestra_gateway_episodes", "gauge", [({}, episodes)]),
            *metric("palestra_gateway_episodes_opened_total", "counter", [({}, self.opened)]),
            *metric("palestra_gateway_answers_total", "counter", answers),
            *metric("palestra_gateway_tokens_total", "counter", tokens),
            *self._seconds.lines("palestra_gateway_answer_seconds"),
        ]
        return "\n".join(lines) + "\n"
