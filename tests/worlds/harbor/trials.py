"""Task folders for whole trials: sound ones, every form of a reward, every fault of a verifier, files, variables, folders."""

from tests.worlds.harbor.folders import DOCKERFILE, IMAGE, SOUND, STEP_FILES, STEPS, Case

__all__ = ["TRIALS"]

TEXTS = {
    "one": "1",
    "half": "0.5",
    "spaces": "  1  \n\n",
    "exponent": "1e-1",
    "negative": "-2",
    "large": "12.5",
    "point": ".25",
    "plus": "+1",
    "underscore": "1_0",
    "empty": "",
    "blank": " \n",
    "nan": "nan",
    "infinity": "-inf",
    "word": "one",
    "two-numbers": "1 2",
    "hexadecimal": "0x1",
    "true": "True",
    "overflow": "1e999",
}
JSONS = {
    "one": '{"reward": 1}',
    "float": '{"reward": 0.75}',
    "several": '{"reward": 1, "style": 0.5, "speed": -3}',
    "another-name": '{"score": 0.25}',
    "nan": '{"reward": NaN}',
    "infinity": '{"reward": Infinity}',
    "overflow": '{"reward": 1e999}',
    "text": '{"reward": "1"}',
    "null": '{"reward": null}',
    "nested": '{"reward": {"a": 1}}',
    "list": '{"reward": [1]}',
    "broken": '{"reward": 1',
    "empty": "",
}
SCRIPTS = {
    "nothing-written": "true",
    "exit-1": "echo 1 > /logs/verifier/reward.txt; exit 1",
    "killed": "echo 1 > /logs/verifier/reward.txt; kill -9 $$",
    "json-first": "echo 0 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "no-program": "no-such-program",
    "a-folder": "mkdir /logs/verifier/reward.txt",
    "in-background": "(sleep 0.2; echo 1 > /logs/verifier/reward.txt) & wait",
    "by-python": 'python3 -c \'open("/logs/verifier/reward.txt", "w").write("1")\'',
    "working-folder": 'echo "$([ "$PWD" = /app ] && echo 1 || echo 0)" > /logs/verifier/reward.txt',
    "standard-input": "cat > /dev/null; echo 1 > /logs/verifier/reward.txt",
    "big-output": "seq 200000; echo 1 > /logs/verifier/reward.txt",
    "own-files": "cat /tests/data.txt > /logs/verifier/reward.txt",
}
ANSWER = '#!/bin/bash\n[ "$(cat {place} 2>/dev/null)" = "{word}" ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'
NO_NETWORK = 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'


def _script(body: str) -> Case:
    return Case(None, {"tests/test.sh": f"#!/bin/bash\n{body}\n", "tests/data.txt": "1\n"})


def _answer(place: str, word: str, solve: str, toml: str = "", **files: str) -> Case:
    written = {"tests/test.sh": ANSWER.format(place=place, word=word), "solution/solve.sh": f"#!/bin/bash\n{solve}\n", **files}
    return Case(NO_NETWORK + toml, written)


TRIALS: dict[str, Case] = {
    **SOUND,
    **{f"text-{name}": _script(f"printf '%s' '{text}' > /logs/verifier/reward.txt") for name, text in TEXTS.items()},
    **{f"json-{name}": _script(f"printf '%s' '{text}' > /logs/verifier/reward.json") for name, text in JSONS.items()},
    **{f"script-{name}": _script(body) for name, body in SCRIPTS.items()},
    "verifier-time": Case(NO_NETWORK + "[verifier]\ntimeout_sec = 1.0\n", {"tests/test.sh": "#!/bin/sh\nsleep 30\n"}),
    "agent-time": Case(
        NO_NETWORK + "[agent]\ntimeout_sec = 2.0\n", {"solution/solve.sh": "echo hello > /app/answer.txt\nsleep 60\n"}
    ),
    "variables": _answer("/app/answer.txt", "$WORD", 'echo "$WORD" > answer.txt', 'env = {WORD = "x y"}\n'),
    "verifier-variables": _answer("/app/answer.txt", "$WORD", "echo v > answer.txt", '[verifier]\nenv = {WORD = "v"}\n'),
    "solution-variables": _answer("/app/answer.txt", "s", 'echo "$WORD" > answer.txt', '[solution]\nenv = {WORD = "s"}\n'),
    "image-variables": _answer(
        "/app/answer.txt", "$WORD", 'echo "$WORD" > answer.txt', **{"environment/Dockerfile": f"{DOCKERFILE}ENV WORD=image\n"}
    ),
    "other-workdir": _answer("/work/answer.txt", "w", "echo w > answer.txt", 'workdir = "/work"\n'),
    "solution-with-files": _answer(
        "/app/answer.txt", "part", "cp /solution/part.txt answer.txt", **{"solution/part.txt": "part\n"}
    ),
    "copied-data": _answer(
        "/app/answer.txt",
        "3",
        "wc -l < data.txt > answer.txt",
        **{"environment/Dockerfile": f"FROM {IMAGE}\nWORKDIR /app\nCOPY data.txt .\n", "environment/data.txt": "a\nb\nc\n"},
    ),
    "steps-stopped": Case(STEPS.replace("STRATEGY", "mean"), {**STEP_FILES, "steps/one/solution/solve.sh": "true\n"}),
    "steps-second-fails": Case(STEPS.replace("STRATEGY", "mean"), {**STEP_FILES, "steps/two/solution/solve.sh": "true\n"}),
}
"""Name → folder. Each is played by its solution and by nothing."""
