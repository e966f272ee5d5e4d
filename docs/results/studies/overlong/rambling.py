"""A teacher that writes other moves before its own, for a model whose replies are often too long."""

from palestra.core import Conversation
from palestra.foundation.seeding import derive
from palestra.trajectory import Completion


class Rambling:
    """Random moves. Before each stands a geometric number of others, with this mean; the game takes the last one."""

    name = "rambling"
    privileged = True

    def __init__(self, mean: float = 4.0) -> None:
        self._mean = mean

    async def act(self, conversation: Conversation) -> Completion:
        if not conversation.memory:
            conversation.memory["seeded"] = True
            await conversation.env.seed_actions(conversation.seed)
        random = derive(conversation.seed, "rambling", len(conversation.messages))
        count = int(random.geometric(1 / (1 + self._mean)))
        return Completion("".join([await conversation.env.sample_random_action() for _ in range(count)]))
