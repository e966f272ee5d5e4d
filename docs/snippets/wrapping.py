from functools import partial

import palestra
from palestra.trajectory import Content
from palestra.wrappers import KeepHistory, TurnLimit


class Shout(palestra.Wrapper):
    """Makes the environment speak up."""

    def observation(self, observation: Content) -> Content:
        return observation.upper() if isinstance(observation, str) else observation


env = palestra.make("game:GuessTheNumber-v0", wrappers=[partial(TurnLimit, turns=3), KeepHistory, Shout])
observation, info = env.reset(seed=0)
observation, reward, terminated, truncated, info = env.step("\\boxed{25}")
print(observation)
env.close()

limited = TurnLimit(palestra.make("game:GuessTheNumber-v0"), turns=3)  # around an object that exists already
observation, info = limited.reset(seed=0)
twin = limited.fork()  # an independent copy of the episode
twin.step("\\boxed{25}")
twin.close()
limited.close()
