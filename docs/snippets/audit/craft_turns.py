import palestra


def oracle_score(id: str, goal: str) -> float:
    with palestra.make(id) as env:
        env.reset(task=palestra.Task(id, params={"goal": goal}))
        while True:
            step = env.step(env.oracle())
            if step.terminated or step.truncated:
                return step.reward


assert oracle_score("craft:minecraft-agentgym", "anvil") == 0.0  # 30 turns, and an anvil takes 36 commands
assert oracle_score("craft:minecraft-depth3", "anvil") == 1.0
