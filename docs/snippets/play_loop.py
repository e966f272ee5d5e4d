import palestra

env = palestra.make("game:GuessTheNumber-v0")
observation, info = env.reset(seed=0)
while True:
    action = env.sample_random_action()  # your model here
    observation, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        break
