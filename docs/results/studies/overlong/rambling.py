"""A teacher that writes some digits before its move, for a model whose replies are often too long."""

from palestra.core import Conversation
from palestra.seeding import derive
from palestra.training.imitation import VariedPolicy
from palestra.trajectory import Completion


class Rambling(VariedPolicy):
    """Random moves, seldom repeated, after a geometric number of digits with this mean."""

    name = "rambling"

    def __init__(self, mean: float = 4.0) -> None:
        self._mean = mean

    async def act(self, conversation: Conversation) -> Completion:
        move = await super().act(conversation)
        random = derive(conversation.seed, "rambling", len(conversation.messages))
        count = int(random.geometric(1 / (1 + self._mean))) - 1
        return Completion("".join(str(random.integers(1, 10)) for _ in range(count)) + move.text)
