import palestra

LAKE = "gymnasium:FrozenLake-v1?render_mode=ansi&is_slippery=false&names=left,down,right,up&solved_at=1"

with palestra.make(LAKE) as env:
    observation, info = env.reset(seed=0)
    print(observation)
    print(env.step(r"\boxed{right}").observation)

for trajectory in palestra.collect(LAKE, "random", n=3):
    print(trajectory.reward, trajectory.success, len(trajectory.turns))
