"""How many bytes the requests of an episode make the gateway keep, per episode and in all."""

from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import BadRequest

__all__ = ["CALL", "NODE", "REQUEST", "Hold", "Holdings"]

REQUEST = 2**17
"""Bytes of a request under way beside its body: its connection, the buffers of the connection, and its tasks."""
CALL = 4096
"""Bytes of a recorded call beside its text and its tokens: the call, its task and reply, its names, and its session."""
NODE = 640
"""Bytes of a message's place in the graph of conversations."""


class Holdings:
    """Bytes that are kept, against a limit. What is held here is held by ``within`` too."""

    def __init__(self, limit: int, refusal: BadRequest, within: "Holdings | None" = None) -> None:
        self.limit = limit
        self.held = 0
        self._refusal = refusal
        self._within = within

    @classmethod
    def of_gateway(cls, limits: GatewayLimits) -> "Holdings":
        """Return the holdings of all episodes of a gateway."""
        text = (
            f"the requests of all episodes would keep more than {limits.total_memory} bytes of memory "
            f"(GatewayLimits.total_memory); try again when another episode has ended"
        )
        return cls(limits.total_memory, BadRequest(text, status=503, code="memory_limit"))

    @classmethod
    def of_episode(cls, limits: GatewayLimits, within: "Holdings | None" = None) -> "Holdings":
        """Return the holdings of one episode."""
        text = f"the requests of this episode would keep more than {limits.memory} bytes of memory (GatewayLimits.memory)"
        return cls(limits.memory, BadRequest(text, status=413, code="memory_limit"), within)

    def take(self, amount: int) -> None:
        """Count ``amount`` more bytes; if they exceed a limit, count nothing and raise ``BadRequest``."""
        if self.held + amount > self.limit:
            raise BadRequest(str(self._refusal), status=self._refusal.status, code=self._refusal.code)
        if self._within is not None:
            self._within.take(amount)
        self.held += amount

    def correct(self, amount: int) -> None:
        """Count ``amount`` more or, if it is negative, fewer bytes, whatever the limits are."""
        self.held += amount
        if self._within is not None:
            self._within.correct(amount)


class Hold:
    """The bytes that one request holds until it is over."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self.size = 0

    def add(self, amount: int) -> None:
        """Hold ``amount`` more bytes, or raise ``BadRequest``."""
        self._holdings.take(amount)
        self.size += amount

    def release(self) -> None:
        """Give everything back."""
        self._holdings.correct(-self.size)
        self.size = 0
