"""Playing Harbor tasks in the box: rewards as specified, oracle and no-op, verifiers that fail, three ways to verify."""

import shutil
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.sandbox.test_shell import small_root
from tests.worlds.harbor.folders import SOUND, write

from palestra.core import Step
from palestra.errors import EnvError, GraderError, MissingData, Unsupported, UsageError
from palestra.evaluation import evaluate, regrade
from palestra.rollouts.storage import read_trajectories
from palestra.worlds.harbor.env import Harbor, _chosen, harbor_cache
from palestra.worlds.harbor.hacks import HACKS
from palestra.worlds.harbor.reading import read_task

SUBMIT = "```bash\nsubmit\n```"


async def played(env: Harbor, *commands: str) -> Step:
    """Run ``commands``, then submit until the end."""
    await env.reset(seed=0)
    for command in commands:
        step = await env.step(f"```bash\n{command}\n```")
        if step.terminated:
            return step
    while not (step := await env.step(SUBMIT)).terminated:
        pass
    return step


async def solved(env: Harbor) -> Step:
    await env.reset(seed=0)
    while not (step := await env.step(await env.oracle())).terminated:
        pass
    return step


def opened(made: list[Harbor], folder: Path, options: str = "", **settings: object) -> Harbor:
    made.append(Harbor(f"{folder}?base=host{options}", **settings))  # type: ignore[arg-type]
    return made[-1]


FULL = {"steps-mean": 0.75, "steps-final": 0.5, "steps-shared-tests": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
async def test_the_solution_gets_full_reward_and_nothing_gets_none(name: str, tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / name, SOUND[name].files, SOUND[name].toml))
    assert (await played(env)).reward == 0.0
    step = await solved(env)
    assert (step.reward, step.info["success"]) == (FULL.get(name, 1.0), FULL.get(name, 1.0) == 1.0)


@pytest.mark.slow
def test_an_episode_records_the_whole_id_and_can_be_regraded(tmp_path: Path) -> None:
    id = f"harbor:{write(tmp_path / 'tasks/one').parent}?base=host#one"
    actions = ["```bash\necho hello > answer.txt\n```", SUBMIT]
    report = evaluate(id, lambda text: actions[not str(text).startswith("You work")], n=1, out=tmp_path / "run")
    assert [section.name for section in report.envs] == [id]
    (episode,) = read_trajectories(tmp_path / "run/trajectories.jsonl")
    assert (episode.task.env, episode.reward) == (id, 1.0)
    found = regrade(tmp_path / "run", envs=[id])
    assert (found.regraded, found.changed) == (1, ())


async def test_the_instruction_is_the_first_observation(tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task"))
    observation, info = await env.reset(seed=0)
    assert "bash in /app" in observation
    assert observation.endswith("Write the word hello to the file /app/answer.txt.\n")
    assert info == {"max_turns": 50, "task": "task"}
    assert str((await env.step("```bash\npwd; ls /tests\n```")).observation).startswith("/app\nls: cannot access '/tests'")
    step = await played(env, "echo hello > answer.txt")
    assert (step.reward, step.info["success"], step.info["metrics"]) == (1.0, True, {"reward": 1.0})


FAULTS = {
    "crash": ("#!/bin/sh\nexit 3\n", "written neither"),
    "no interpreter": ("#!/no/such/program\n", "written neither"),
    "empty": ("#!/bin/sh\n: > /logs/verifier/reward.txt\n", "is empty"),
    "words": ("#!/bin/sh\necho good > /logs/verifier/reward.txt\n", 'not a number: "good"'),
    "NaN": ("#!/bin/sh\necho nan > /logs/verifier/reward.txt\n", "not finite"),
    "infinite": ("#!/bin/sh\necho 1e999 > /logs/verifier/reward.txt\n", "not finite"),
    "not JSON": ("#!/bin/sh\necho '{' > /logs/verifier/reward.json\n", "is not JSON"),
    "JSON number": ("#!/bin/sh\necho 1 > /logs/verifier/reward.json\n", "not an object"),
    "JSON text": ('#!/bin/sh\necho \'{"reward": "1"}\' > /logs/verifier/reward.json\n', '"reward" is not a number'),
    "JSON truth": ("#!/bin/sh\necho '{\"reward\": true}' > /logs/verifier/reward.json\n", '"reward" is not a number'),
    "JSON NaN": ("#!/bin/sh\necho '{\"reward\": NaN}' > /logs/verifier/reward.json\n", "not finite"),
    "huge": ('#!/bin/sh\necho \'{"reward": 1' + "0" * 400 + "}' > /logs/verifier/reward.json\n", "not finite"),
    "two names": ('#!/bin/sh\necho \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json\n', "choose one with"),
    "a link": ("#!/bin/sh\nln -s /etc/passwd /logs/verifier/reward.txt\n", "cannot be read"),
    "endless": ("#!/bin/sh\nwhile :; do sleep 1; done\n", "did not end within 0.5 s"),
    "no network": (
        "#!/bin/sh\nset -e\npython3 -c 'import socket; socket.socket()'\necho 1 > /logs/verifier/reward.txt\n",
        "PermissionError",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_verifier_that_fails_is_never_a_zero(name: str, tmp_path: Path, made: list[Harbor]) -> None:
    script, sentence = FAULTS[name]
    toml = f"[verifier]\ntimeout_sec = {0.5 if name == 'endless' else 20.0}\n"
    env = opened(made, write(tmp_path / "task", {"tests/test.sh": script}, toml))
    with pytest.raises(GraderError) as caught:
        await played(env)
    assert sentence in str(caught.value)


STALE = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
TAMPERING = {
    "a reward of its own": STALE,
    "a link in place of the tests": "ln -s /etc /tests",
    "tests of its own": "mkdir /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod 555 /tests /",
    "a file in place of the logs": "rm -rf /logs; echo 1 > /logs",
    "a link in place of the logs": "rm -rf /logs; ln -s /tmp /logs; mkdir /tmp/verifier",
    "a reward that is a link": "ln -s /tmp/r /logs/verifier/reward.json",
    "a shell that has ended": "exit 0",
    "a program that still runs": "sleep 1000",
}


@pytest.mark.parametrize("name", TAMPERING)
async def test_tampering_with_the_places_of_the_verifier_gets_nothing(name: str, tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task"), command_seconds=0.5)
    assert (await played(env, TAMPERING[name])).reward == 0.0
    assert (await played(env, f"echo hello > /app/answer.txt; {TAMPERING[name]}")).reward == 1.0


DAEMON = HACKS["a daemon"]
REPLACED = "mkdir -p ~/bin; printf '#!/bin/sh\\necho hello' > ~/bin/cat; chmod +x ~/bin/cat; export PATH=$HOME/bin:$PATH"


async def test_a_clean_verifier_uses_no_program_of_the_agent(tmp_path: Path, made: list[Harbor]) -> None:
    folder = write(tmp_path / "task")
    shared = opened(made, folder)
    assert (await played(shared, REPLACED)).reward == 0.0, "variables of the agent do not reach the verifier"
    clean = opened(made, folder, "&verifier=clean")
    assert [(await played(clean, hack)).reward for hack in (REPLACED, DAEMON)] == [0.0, 0.0]
    assert (await played(clean, "echo hello > answer.txt")).reward == 1.0


async def test_a_separate_verifier_gets_the_artifacts_alone(tmp_path: Path, made: list[Harbor]) -> None:
    test = "#!/bin/sh\nls /app > /logs/verifier/seen; [ -e /app/other ] && r=0 || r=$(cat /app/answer.txt || echo 0)\n"
    files = {"tests/test.sh": f"{test}echo $r > /logs/verifier/reward.txt\n"}
    env = opened(made, write(tmp_path / "task", files, SOUND["separate"].toml))
    assert (await played(env, "echo 1 > answer.txt; echo 1 > other")).reward == 1.0
    assert (await played(env, REPLACED)).reward == 0.0
    assert (await played(env, "ln -s /tests/test.sh answer.txt")).reward == 0.0


async def test_the_dockerfile_is_built_once(tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task", SOUND["dockerfile"].files))
    await env.reset(seed=0)
    step = await env.step("```bash\ncat both.txt heredoc.txt renamed.txt; echo $OLD; ls | wc -l; rm -rf *\n```")
    assert str(step.observation).split() == ["a", "1", "a", "b", "1", "form", "8"]
    layers = list((tmp_path / "home/harbor/layers").iterdir())
    await env.reset(seed=0)
    assert (await env.step("```bash\nls | wc -l\n```")).observation == "8"
    assert list((tmp_path / "home/harbor/layers").iterdir()) == layers
    assert len(layers) == 1


def archive_of_a_small_system(folder: Path) -> Path:
    root = small_root(folder / "small")
    for program in ("mkdir", "env", "sh", "ls"):
        shutil.copy(f"/usr/bin/{program}", root / "bin")
    with tarfile.open(folder / "small.tar", "w") as archive:
        archive.add(root, ".")
    return folder / "small.tar"


async def test_a_prepared_environment_is_not_built_again(tmp_path: Path, made: list[Harbor]) -> None:
    text = "FROM other\nWORKDIR /app\nRUN apt-get install -y nothing && exit 1\n"
    files = {"environment/Dockerfile": text, "tests/Dockerfile": "FROM debian:12\nCOPY . /tests\n"}
    folder = write(tmp_path / "task", files, SOUND["separate"].toml)
    archive = archive_of_a_small_system(tmp_path)
    made.append(Harbor(str(folder)))
    with pytest.raises(MissingData, match="RUN apt-get install needs a network"):
        await made[-1].reset(seed=0)
    key = harbor_cache().add_archive(read_task(folder).identity, archive)
    (tmp_path / "home/harbor/roots" / key / "image.json").write_text('{"WorkingDir": "/app"}')  # as docker saves it
    harbor_cache().add_archive("debian:12", archive)
    assert (await played(made[-1], "echo hello > answer.txt")).reward == 1.0
    assert (await played(made[-1])).reward == 0.0


async def test_a_build_that_fails_names_the_line(tmp_path: Path, made: list[Harbor]) -> None:
    for text, sentence in {
        "FROM x\nRUN echo no; exit 4\n": r"line 2 failed in the box \(exit code 4\): no",
        "FROM x\nCOPY none /a\n": "line 2: none is not in the environment folder",
        "FROM x\nCOPY ../tests /a\n": "line 2: ../tests lies outside",
    }.items():
        env = opened(made, write(tmp_path / "task", {"environment/Dockerfile": text}))
        with pytest.raises(EnvError, match=sentence):
            await env.reset(seed=0)


async def test_what_cannot_be_played_says_why(tmp_path: Path, made: list[Harbor], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "set" / "plain")
    made.append(Harbor(str(folder)))
    with pytest.raises(MissingData, match="no root file system for the image debian:12"):
        await made[-1].reset(seed=0)
    write(tmp_path / "set" / "gpu", toml="[environment]\ngpus = 1\n")
    with pytest.raises(Unsupported, match="needs docker: environment: the task needs a GPU"):
        await opened(made, tmp_path / "set", "#gpu").reset(seed=0)
    write(tmp_path / "set" / "memory", toml="[environment]\nmemory_mb = 100000000\n")
    with pytest.raises(Unsupported, match="asks for 100000000 MiB of memory, and this machine has"):
        await opened(made, tmp_path / "set", "#memory").reset(seed=0)
    monkeypatch.setenv("MY_SECRET", "open sesame")
    write(tmp_path / "set" / "secret", toml='[environment]\nenv = {A = "${MY_SECRET}", B = "${MY_SECRET:-none}"}\n')
    with pytest.raises(UsageError, match="wants the variable MY_SECRET"):
        await opened(made, tmp_path / "set", "#secret").reset(seed=0)
    env = opened(made, tmp_path / "set", "#secret", trust=True)
    await env.reset(seed=0)
    assert (await env.step("```bash\necho $A $B\n```")).observation == "open sesame open sesame"
    for address, sentence in {"#none": 'no task "none"', "&verifier=none": "base is", "&what=1": "no option what"}.items():
        with pytest.raises(UsageError, match=sentence):
            opened(made, tmp_path / "set", address)


async def test_a_fork_goes_on_from_files_folder_and_variables(tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task"), max_turns=9)
    await env.reset(seed=0)
    await env.step("```bash\nmkdir deep; cd deep; export WORD=hello; echo no > ../answer.txt\n```")
    await env.sample_random_action()
    twin = await env.fork()
    made.append(twin)
    assert [await twin.sample_random_action() for _ in range(9)] == [await env.sample_random_action() for _ in range(9)]
    assert (await twin.step("```bash\npwd; echo $WORD > ../answer.txt\n```")).observation == "/app/deep"
    assert (await twin.step(SUBMIT)).reward == 1.0
    assert (await env.step(SUBMIT)).reward == 0.0, "the files of the first are its own"


def test_a_task_is_chosen_by_its_whole_name(tmp_path: Path) -> None:
    folders = [write(tmp_path / name) for name in ("a/t1", "b/t1", "b/t2")]
    assert _chosen(folders, "b/t1") == [folders[1]]
    assert _chosen(folders, "t2") == _chosen(folders, "org/t2") == [folders[2]], "org is the first part of the task's name"
    for name in ("t1", "org/t1"):
        with pytest.raises(UsageError, match=r"2 tasks there are called .*a/t1, b/t1"):
            _chosen(folders, name)


async def test_the_time_of_the_agent_ends(tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task", toml="[agent]\ntimeout_sec = 0.3\n"), command_seconds=0.4)
    await env.reset(seed=0)
    await env.step("```bash\necho hello > answer.txt; sleep 10\n```")
    step = await env.step("```bash\nrm answer.txt\n```")
    assert (step.terminated, step.reward, step.observation) == (True, 1.0, "[the agent's time is over]")


async def test_running_processes_cannot_be_forked(tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task"))
    await env.reset(seed=0)
    await env.step("```bash\nsleep 100 &\n```")
    with pytest.raises(Unsupported, match="a fork cannot copy them"):
        await env.fork()


async def test_min_reward_ends_a_task(tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task", SOUND["steps-mean"].files, SOUND["steps-mean"].toml))
    await env.reset(seed=0)
    step = await env.step(SUBMIT)
    assert (step.terminated, step.reward) == (True, 0.0)
    await env.reset(seed=0)
    step = await env.step("```bash\necho 1 > /app/one.txt\n```")
    step = await env.step(SUBMIT)
    assert (step.terminated, step.observation) == (False, "Copy /app/seed.txt to /app/two.txt.")
