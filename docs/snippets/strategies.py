import re

import palestra
from palestra.policies.choosing import BestOf
from palestra.policies.strategy import Strategy, named_strategy
from palestra.trajectory import Completion


class Hint(Strategy):
    """Adds a hint to what the model reads."""

    def __init__(self, policy, hint="Take your time."):
        super().__init__(policy, "hint")
        self.hint = hint

    async def act(self, conversation):
        thread = self.thread(conversation)
        thread.aside.messages += thread.news(conversation)
        latest = thread.aside.messages[-1]
        thread.aside.messages[-1] = palestra.Message("user", f"{latest.content}\n\n{self.hint}")
        reply = await self.policy.act(thread.aside)
        thread.aside.messages.append(palestra.Message("assistant", reply.text, reply.reasoning))
        return reply


class Halves:
    """Guesses the middle of what is left. Any policy can be in its place: a ChatPolicy, a SampledPolicy."""

    async def act(self, conversation):
        low, high = 1, 10
        for message in conversation.messages:
            if found := re.search(r"is (lower|higher) than (\d+)", str(message.content)):
                number = int(found[2])
                low, high = (low, number - 1) if found[1] == "lower" else (number + 1, high)
        return Completion(f"\\boxed{{{(low + high) // 2}}}")


for policy in (Halves(), Hint(Halves()), BestOf(Halves(), n=3), named_strategy("tree?forks=50")(Halves())):
    report = palestra.evaluate("game:GuessTheNumber-v0-easy", policy, n=20)
    print(f"{report.policy:40} {report.suite.score.mean:.2f} {report.privilege}")
