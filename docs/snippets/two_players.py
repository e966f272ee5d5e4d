import palestra
from palestra import Env, Step


class Nim(Env):
    """Two players take one to three stones in turn; the player who takes the last one wins."""

    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        self.stones = int(self.rng.integers(5, 20))
        self.turn = 0
        return self._shown(), {"player": "first"}

    def step(self, action):
        taken = int(action) if action in ("1", "2", "3") else 1
        self.stones -= min(taken, self.stones)
        actor, other = ("first", "second") if self.turn % 2 == 0 else ("second", "first")
        self.turn += 1
        if self.stones:
            return Step(self._shown(), 0.0, False, False, {"player": other})
        return Step("no stones are left", 1.0, True, False, {"rewards": {actor: 1.0, other: -1.0}})

    def _shown(self):
        return f"{self.stones} stones are left. Take 1, 2 or 3."


def careful(text):
    stones = int(text.split()[0])
    return str(stones % 4 or 1)


trajectories = palestra.collect(Nim, {"first": careful, "second": lambda text: "1"}, n=10)
for trajectory in trajectories[:4]:
    print(trajectory.group, trajectory.player, trajectory.policy, trajectory.reward, len(trajectory.turns))
