import palestra
from palestra import Env, Step


class Parity(Env):
    """Say whether the shown number is even or odd."""

    floor = 0.5  # "odd" is right half of the time

    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)  # self.rng is now this task's own generator
        self.number = int(self.rng.integers(1000))
        return f"Is {self.number} even or odd? Answer with \\boxed{{even}} or \\boxed{{odd}}.", {}

    def step(self, action):
        answer = palestra.grading.last_boxed(action)
        correct = answer == self._truth()
        return Step("", float(correct), True, False, {"answer": answer, "success": correct})

    def oracle(self):
        return f"\\boxed{{{self._truth()}}}"

    def sample_random_action(self):
        return f"\\boxed{{{self.action_rng.choice(['even', 'odd'])}}}"

    def _truth(self):
        return "odd" if self.number % 2 else "even"


palestra.register("demo:Parity-v0", Parity)
