from palestra.registry import spec

games = set(spec("science:agentgym").read_rows())
train, test = (set(spec(f"science:boil-{split}").read_rows()) for split in ("train", "test"))

assert train <= games
assert test <= games
assert not train & test
