"""Harbor task folders, written by code: sound ones that use every key of the schema, and one per fault."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["BROKEN", "CLASSES", "SOUND", "Case", "write"]

IMAGE = "debian:12"
INSTRUCTION = "Write the word hello to the file /app/answer.txt.\n"
DOCKERFILE = f"FROM {IMAGE}\nWORKDIR /app\n"
TEST = """#!/bin/bash
if [ "$(cat /app/answer.txt 2>/dev/null)" = hello ]; then echo 1 > /logs/verifier/reward.txt
else echo 0 > /logs/verifier/reward.txt; fi
"""
JSON_TEST = """#!/bin/sh
set -e
[ "$TWO" = 2 ]
printf '{"reward": %s}' "$(cat /app/two.txt || echo 0)" > /logs/verifier/reward.json
"""
TWO_REWARDS = """#!/bin/sh
[ -s /app/answer.txt ] && r=1 || r=0
printf '{"reward": %s, "lines": 1}' $r > /logs/verifier/reward.json
"""
SOLVE = "#!/bin/bash\necho hello > /app/answer.txt\n"
TOML = 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'
FILES = {
    "task.toml": TOML,
    "instruction.md": INSTRUCTION,
    "environment/Dockerfile": DOCKERFILE,
    "tests/test.sh": TEST,
    "solution/solve.sh": SOLVE,
}


def write(folder: Path, files: Mapping[str, str | None] = {}, toml: str | None = None) -> Path:
    """Write the plain task with ``files`` in place of its own; ``None`` leaves a file out."""
    changed = {**FILES, **files, **({} if toml is None else {"task.toml": toml})}
    for path, text in changed.items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            (folder / path).chmod(0o755 if path.endswith(".sh") else 0o644)
    return folder


class Case(NamedTuple):
    """A folder, and what a reader says about it."""

    toml: str | None = None
    files: Mapping[str, Any] = {}
    says: str = ""
    kind: int = 1


STEP = {f"steps/{name}/{path}": text for name in ("one", "two") for path, text in {"instruction.md": f"Step {name}.\n"}.items()}
EVERY_KEY = """
schema_version = "1.4"
source = "here"
artifacts = ["/app/answer.txt", {source = "/app/out", destination = "out", exclude = ["*.log"]}]
[task]
name = "palestra/every-key"
version = "2"
description = "Every key of a task without steps."
keywords = ["test"]
[[task.authors]]
name = "A"
email = "a@example.org"
[metadata]
difficulty = "easy"
anything.goes = [1, 2]
[environment]
build_timeout_sec = 60.0
os = "Linux"
cpus = 1
memory_mb = 256
storage_mb = 64
gpus = 0
workdir = "/app"
network_mode = "no-network"
env = {GREETING = "${PALESTRA_NO_SUCH_VARIABLE:-hello}", PLAIN = "x"}
[agent]
timeout_sec = 20
user = "root"
network_mode = "no-network"
[verifier]
timeout_sec = 20.0
user = "root"
network_mode = "no-network"
environment_mode = "shared"
env = {EXPECTED = "hello"}
[solution]
env = {WORD = "hello"}
"""
SEPARATE = """
artifacts = ["/app/answer.txt"]
[environment]
network_mode = "no-network"
[verifier]
environment_mode = "separate"
[[verifier.collect]]
command = "cp /app/answer.txt /logs/artifacts/copy.txt"
timeout_sec = 5
"""
STEPS = """
multi_step_reward_strategy = "STRATEGY"
[environment]
network_mode = "no-network"
[[steps]]
name = "one"
min_reward = 0.5
artifacts = ["/app/one.txt"]
agent.timeout_sec = 10
[[steps]]
name = "two"
verifier.timeout_sec = 10
verifier.env = {TWO = "2"}
"""
STEP_FILES: dict[str, str | None] = {
    "instruction.md": None,
    "tests/test.sh": None,
    "solution/solve.sh": None,
    "steps/one/instruction.md": "Write 1 to /app/one.txt.\n",
    "steps/one/tests/test.sh": "#!/bin/sh\n[ -s /app/one.txt ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n",
    "steps/one/solution/solve.sh": "echo 1 > /app/one.txt\n",
    "steps/two/instruction.md": "Copy /app/seed.txt to /app/two.txt.\n",
    "steps/two/tests/test.sh": JSON_TEST,
    "steps/two/solution/solve.sh": "cp /app/seed.txt /app/two.txt\n",
    "steps/two/workdir/seed.txt": "0.5\n",
    "steps/two/workdir/setup.sh": "echo ready > /app/ready.txt\n",
}
SOUND: dict[str, Case] = {
    "plain": Case(),
    "no-version": Case('[environment]\nnetwork_mode = "no-network"\n'),
    **{f"version-{number}": Case(f'version = "{number}"\n') for number in ("1.0", "1.1", "1.2", "1.3", "1.4")},
    "old-forms": Case('version = "1.0"\n[environment]\nmemory = "256M"\nstorage = "1G"\nallow_internet = false\n'),
    "agreeing-forms": Case('[environment]\nmemory = "1G"\nmemory_mb = 1024\n'),
    "every-key": Case(EVERY_KEY, {"solution/solve.sh": 'echo "$WORD" > /app/answer.txt\n'}),
    "separate": Case(SEPARATE),
    "separate-own-image": Case(
        SEPARATE + "[verifier.environment]\nmemory_mb = 256\n", {"tests/Dockerfile": f"FROM {IMAGE}\nCOPY . /tests\n"}
    ),
    "steps-mean": Case(STEPS.replace("STRATEGY", "mean"), STEP_FILES),
    "steps-final": Case(STEPS.replace("STRATEGY", "final"), STEP_FILES),
    "steps-shared-tests": Case(
        '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\nmin_reward = {reward = 1.0}\n', {**STEP, "instruction.md": None}
    ),
    "reward-json": Case(None, {"tests/test.sh": TWO_REWARDS}),
    "canary": Case(None, {"instruction.md": f"<!-- harbor-canary GUID 0 -->\n# canary\n\n{INSTRUCTION}"}),
    "dockerfile": Case(
        None,
        {
            "environment/Dockerfile": f"""# a comment
ARG BASE={IMAGE}
FROM ${{BASE}} AS main
ENV GREETING="hello world" PLACE=/app
ENV OLD form
LABEL a=b
WORKDIR $PLACE
COPY data/ ./data/
COPY one.txt two.txt ${{PLACE}}/
ADD one.txt /app/renamed.txt
RUN cat data/a.txt \\
    # inside
    one.txt > both.txt && echo "$GREETING" > greeting.txt
RUN ["touch", "/app/from exec form"]
RUN <<EOF
echo a > heredoc.txt
echo b >> heredoc.txt
EOF
EXPOSE 80
CMD ["bash"]
""",
            "environment/data/a.txt": "a\n",
            "environment/one.txt": "1\n",
            "environment/two.txt": "2\n",
        },
    ),
}
SEPARATE_ENV = '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1\n'
BROKEN: dict[str, Case] = {
    "no-toml": Case(None, {"task.toml": None}, "task.toml is missing"),
    "bad-toml": Case("a = ", says="task.toml cannot be read"),
    "new-version": Case('schema_version = "9.0"', says="task.toml: schema_version"),
    "text-cpus": Case('[environment]\ncpus = "two"', says="task.toml: environment.cpus"),
    "zero-cpus": Case("[environment]\ncpus = 0", says="task.toml: environment.cpus"),
    "negative-time": Case("[verifier]\ntimeout_sec = -1", says="task.toml: verifier.timeout_sec"),
    "bad-network": Case('[environment]\nnetwork_mode = "some"', says="task.toml: environment.network_mode"),
    "hosts-alone": Case('[environment]\nallowed_hosts = ["a.org"]', says="task.toml: environment.allowed_hosts"),
    "bad-os": Case('[environment]\nos = "plan9"', says="task.toml: environment.os"),
    "bad-name": Case('[task]\nname = "nameless"', says="task.toml: task.name"),
    "no-name": Case('[task]\nversion = "1"', says="task.toml: task"),
    "bad-size": Case('[environment]\nmemory = "lots"', says="task.toml: environment.memory"),
    "two-sizes": Case('[environment]\nmemory = "1G"\nmemory_mb = 1', says="task.toml: environment.memory"),
    "bad-env": Case("[environment]\nenv = {A = 1}", says="task.toml: environment.env"),
    "bad-mode": Case('[verifier]\nenvironment_mode = "none"', says="task.toml: verifier.environment_mode"),
    "mode-conflict": Case(SEPARATE_ENV, says="task.toml: verifier.environment_mode"),
    "bad-strategy": Case('multi_step_reward_strategy = "sum"', says="task.toml: multi_step_reward_strategy"),
    "bad-artifact": Case('artifacts = ["/a/../b"]', says="task.toml: artifacts[0].source"),
    "bad-destination": Case('artifacts = [{source = "/a", destination = "/b"}]', says="task.toml: artifacts[0].destination"),
    "two-steps": Case('[[steps]]\nname = "one"\n[[steps]]\nname = "One"', STEP, "task.toml: steps[1].name"),
    "bad-step": Case('[[steps]]\nname = "a/b"', says="task.toml: steps[0].name"),
    "step-unwritten": Case('[[steps]]\nname = "one"', says="steps/one/instruction.md is missing"),
    "bad-mcp": Case('[[environment.mcp_servers]]\nname = "m"', says="task.toml: environment.mcp_servers[0].url"),
    "bad-collect": Case("[[verifier.collect]]\ntimeout_sec = 1", says="task.toml: verifier.collect[0]"),
    "no-instruction": Case(None, {"instruction.md": None}, "instruction.md is missing"),
    "empty-instruction": Case(None, {"instruction.md": " \n"}, "instruction.md is empty"),
    "no-environment": Case(None, {"environment/Dockerfile": None}, "environment/Dockerfile is missing"),
    "no-tests": Case(None, {"tests/test.sh": None}, "tests/test.sh is missing"),
}
CLASSES: dict[str, Case] = {
    "compose": Case(None, {"environment/docker-compose.yaml": "services: {}\n"}, "several services", 3),
    "gpu": Case("[environment]\ngpus = 1", says="GPU", kind=3),
    "tpu": Case('[environment]\ntpu = {type = "v6e", topology = "2x2"}', says="TPU", kind=3),
    "windows": Case('[environment]\nos = "windows"', says="windows", kind=3),
    "allowlist": Case('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]', says="allowed hosts", kind=3),
    "agent-allowlist": Case('[agent]\nnetwork_mode = "allowlist"', says="agent.network_mode", kind=3),
    "health": Case('[environment.healthcheck]\ncommand = "true"', says="healthcheck", kind=3),
    "mcp": Case('[[environment.mcp_servers]]\nname = "m"\nurl = "u"', says="mcp_servers", kind=3),
    "user": Case('[agent]\nuser = "alice"', says="agent.user", kind=3),
    "verifier-user": Case("[verifier]\nuser = 1000", says="verifier.user", kind=3),
    "docker-user": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}USER alice\n"}, "USER alice", 3),
    "service": Case('artifacts = [{source = "/a", service = "db"}]', says="another service", kind=3),
    "whole-artifact": Case('artifacts = ["/"]\n[verifier]\nenvironment_mode = "separate"', says="no whole file system", kind=3),
    "verifier-gpu": Case(
        '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\ngpus = 1', says="verifier.environment", kind=3
    ),
    "verifier-allowlist": Case('[verifier]\nnetwork_mode = "allowlist"', says="verifier.network_mode", kind=3),
    "relative-path": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}ENV PATH=.:/bin\n"}, 'the entry "."', 3),
    "systemd": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}RUN systemctl enable x\n"}, "systemctl", 3),
    "other-image": Case(None, {"environment/Dockerfile": "FROM ubuntu:24.04\n"}, "ubuntu:24.04", 2),
    "prebuilt": Case('[environment]\ndocker_image = "me/it:1"', says="me/it:1", kind=2),
    "apt": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}RUN apt-get update && true\n"}, "line 3: RUN apt-get update", 2),
    "pip": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}RUN pip install x\n"}, "pip install", 2),
    "wheelhouse": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}RUN pip install --no-index -f /w x\n"}, "", 1),
    "stages": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}FROM x\n"}, "second FROM", 2),
    "copy-from": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}COPY --from=x a b\n"}, "--from=x", 2),
    "add-url": Case(None, {"environment/Dockerfile": f"{DOCKERFILE}ADD https://a.org/b c\n"}, "needs a network", 2),
    "shell": Case(None, {"environment/Dockerfile": f'{DOCKERFILE}SHELL ["bash"]\n'}, "SHELL", 2),
    "ignore-file": Case(None, {"environment/.dockerignore": "x\n"}, ".dockerignore", 2),
    "online-grader": Case(None, {"tests/test.sh": "curl -LsSf https://a.org | sh\n"}, "tests/test.sh runs curl", 2),
}
