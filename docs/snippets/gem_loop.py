import palestra as gem

env = gem.make("game:GuessTheNumber-v0")
observation, info = env.reset()
while True:
    action = env.sample_random_action()
    observation, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        break
