import palestra
from palestra import AsyncEnv, Conversation, Message, Policy, Step
from palestra.policies import next_completion


class Support(AsyncEnv):
    """A customer, played by a model, has a problem; the agent helps until the customer says thanks."""

    def __init__(self, customer: Policy) -> None:
        self.customer = customer

    async def reset(self, *, seed=None, task=None):
        await super().reset(seed=seed, task=task)
        self.talk = Conversation(self.task, player="customer")
        return await self._customer_says("You have forgotten your password. Ask for help."), {}

    async def step(self, action):
        said = await self._customer_says(action)
        happy = "thanks" in said.lower()
        return Step(said, float(happy), happy, False, {"success": happy})

    async def _customer_says(self, heard: str) -> str:
        self.talk.messages.append(Message("user", heard))
        completion = await next_completion(self.customer, self.talk)
        self.talk.messages.append(Message("assistant", completion.text))
        return completion.text


class ScriptedCustomer:
    """Stands in for a model here."""

    def act(self, conversation: Conversation) -> str:
        return "Thanks!" if "reset" in str(conversation.observation) else "I cannot log in."


trajectories = palestra.collect(lambda: Support(ScriptedCustomer()), lambda text: "Please reset your password.", n=3)
print([trajectory.reward for trajectory in trajectories])
