from palestra.envs.web.arena.original import WebArena


def judge(answer, row):  # plain or async; ask your model here
    return row["answer"].lower() in answer.lower()


env = WebArena({"shopping": "http://localhost:7770"}, storage="login.json", judge=judge)
