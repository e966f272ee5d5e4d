import palestra

with palestra.make_vec("game:GuessTheNumber-v0-easy", 64) as vec:
    observations, infos = vec.reset(seed=0)
    observations, rewards, terminated, truncated, infos = vec.step(["\\boxed{5}"] * 64)

    vec.send({3: "\\boxed{2}", 17: "\\boxed{8}"})
    for index, step in vec.recv().items():
        print(index, step.reward, step.info.get("final_observation"))
