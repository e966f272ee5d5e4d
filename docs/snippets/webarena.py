import palestra


def judge(answer, row):  # plain or async; ask your model here
    return row["answer"].lower() in answer.lower()


sites = {"shopping": "http://localhost:7770"}
palestra.register(
    "mine:webarena",
    "palestra.worlds.web.arena.original:WebArena",
    kwargs={"addresses": sites, "storage": "login.json", "judge": judge},
)

env = palestra.make("mine:webarena")  # env.reset(seed=0) opens the first task of these sites
tasks = [palestra.Task("mine:webarena", seed) for seed in range(10)]  # for palestra.collect(tasks, policy)
