"""Where a verifier runs: its own variables and folder, its own image, and a shell that the agent has not prepared."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.harbor.folders import SOUND, TEST, write
from tests.worlds.harbor.test_playing import opened, played

from palestra.errors import GraderError, InfrastructureError, Unsupported, UsageError
from palestra.sandbox.shell import Shell, Shells
from palestra.sandbox.shell_box import LayerFull
from palestra.worlds.harbor.classes import classify
from palestra.worlds.harbor.env import Harbor, limits_of
from palestra.worlds.harbor.hacks import HACKS
from palestra.worlds.harbor.reading import read_task
from palestra.worlds.harbor.verifying import run_verifier

REWARD = "> /logs/verifier/reward.txt\n"


@pytest.mark.parametrize("path", ["/opt/bin:", "bin:/usr/bin", ":/usr/bin", "/usr/bin::/bin", "."])
async def test_a_path_to_the_agents_folder_is_refused(path: str, tmp_path: Path, made: list[Harbor]) -> None:
    folder = write(tmp_path / "file", {"environment/Dockerfile": f'FROM debian:12\nWORKDIR /app\nENV PATH="{path}"\n'})
    placement = classify(read_task(folder), {"debian:12"})
    assert (placement.kind, "programs of the agent's working folder" in placement.because) == (3, True)
    table = write(tmp_path / "table", toml=f'[verifier]\nenv = {{PATH = "{path}"}}\n')
    for one in (folder, table):
        with pytest.raises(Unsupported, match="PATH has the entry"):
            await opened(made, one).reset(seed=0)


async def test_a_clean_verifier_needs_a_working_folder_below_the_root(tmp_path: Path, made: list[Harbor]) -> None:
    files = {"environment/Dockerfile": "FROM debian:12\nRUN mkdir /app\n"}
    solve = "echo hello > /app/answer.txt"
    assert (await played(opened(made, write(tmp_path / "shared", files)), solve)).reward == 1.0
    for folder in ("/", "//", "/."):
        task = write(tmp_path / "task", files, f'[environment]\nworkdir = "{folder}"\n')
        with pytest.raises(Unsupported, match="a clean verifier gets the working folder, but that is /"):
            await opened(made, task, "&verifier=clean").reset(seed=0)
    below = write(tmp_path / "below", files, '[environment]\nworkdir = "/app/"\n')
    assert (await played(opened(made, below, "&verifier=clean"), solve)).reward == 1.0


async def test_a_separate_verifier_has_the_variables_and_folder_of_its_own_image(tmp_path: Path, made: list[Harbor]) -> None:
    test = '#!/bin/sh\n[ "$WHO $PWD $AGENT" = "verifier /grading " ] && r=$(cat /app/answer.txt) || r=0\necho $r ' + REWARD
    files = {
        "environment/Dockerfile": "FROM debian:12\nENV WHO=agent AGENT=yes\nWORKDIR /app\n",
        "tests/Dockerfile": "FROM debian:12\nENV WHO=verifier\nWORKDIR /grading\nCOPY . /tests\n",
        "tests/test.sh": test,
    }
    toml = 'artifacts = ["answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n'
    env = opened(made, write(tmp_path / "task", files, toml))
    assert (await played(env, "echo 1 > answer.txt")).reward == 1.0
    assert (await played(env)).reward == 0.0


async def test_a_verifier_in_a_shell_that_was_replaced_is_an_error_that_names_it() -> None:
    async with Shells(warm=0) as shells, await shells.open() as shell:
        await shell.run(f"printf '\\e]7717;{shells.profile.word};1;0\\a'; exec sleep 60")
        with pytest.raises(GraderError, match="another program has replaced the shell"):
            await run_verifier(shell, [], "/", {}, 60.0)


NEW_SHELL = ["aliases", "aliases of a new shell", "a read-only mode", "no room for the host's programs"]


@pytest.mark.parametrize("name", NEW_SHELL)
async def test_a_shared_verifier_starts_in_a_shell_of_its_own(name: str, tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, write(tmp_path / "task"))
    assert (await played(env, HACKS[name])).reward == 0.0
    assert (await played(env, f"echo hello > /app/answer.txt\n{HACKS[name]}")).reward == 1.0


@pytest.mark.parametrize(("mode", "reported"), [("", True), ("&verifier=clean", False)])
async def test_processes_beside_a_shared_verifier_are_reported(
    mode: str, reported: bool, tmp_path: Path, made: list[Harbor]
) -> None:
    env = opened(made, write(tmp_path / "task"), mode)
    step = await played(env, "sleep 1234 & until grep -q ^sleep /proc/$!/cmdline; do :; done")
    assert step.info.get("beside_verifier", []) == ["sleep 1234"] * reported
    assert "beside_verifier" not in (await played(env)).info


async def test_what_is_wrong_with_a_verifier_shows_before_the_agent_works(tmp_path: Path, made: list[Harbor]) -> None:
    secret = write(tmp_path / "secret", toml='[verifier]\nenv = {A = "${NO_SUCH_VARIABLE}"}\n')
    with pytest.raises(UsageError, match="wants the variable NO_SUCH_VARIABLE"):
        await opened(made, secret).reset(seed=0)
    failing = write(tmp_path / "failing", {"tests/Dockerfile": "FROM debian:12\nRUN exit 1\n"}, SOUND["separate"].toml)
    with pytest.raises(GraderError, match="could not be built: Dockerfile line 2 failed"):
        await opened(made, failing).reset(seed=0)


FILL = "import os\nfor i in range(10**6): os.mkdir(f'/srv/{i}')"


@pytest.mark.parametrize(("word", "reward"), [("hello", 1.0), ("wrong", 0.0)])
async def test_an_agent_that_takes_away_etc_and_all_inodes_gets_its_reward(
    word: str, reward: float, tmp_path: Path, made: list[Harbor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palestra.worlds.harbor.env.limits_of", lambda environment: replace(limits_of(environment), files=500))
    env = opened(made, write(tmp_path / "task"))
    step = await played(env, f'echo {word} > answer.txt; mv /etc /e; python3 -c "{FILL}"')
    assert (step.reward, "ruined" in step.info) == (reward, False)


@pytest.mark.parametrize("kind", [LayerFull, InfrastructureError])
async def test_only_files_that_cannot_be_copied_are_the_failure_of_an_agent(
    kind: type[InfrastructureError], tmp_path: Path, made: list[Harbor], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(shells: Shells, source: int, *, left: bool = False) -> Shell:
        if left:
            raise kind("no room")
        return await opening(shells, source)

    opening = Shells.open_from
    monkeypatch.setattr(Shells, "open_from", failing)
    env = opened(made, write(tmp_path / "task"))
    if kind is InfrastructureError:
        with pytest.raises(InfrastructureError, match="no room"):
            await played(env)
    else:
        step = await played(env, "echo hello > answer.txt")
        assert (step.reward, step.info["success"], step.info["ruined"]) == (0.0, False, "no room")


async def test_excluded_files_do_not_reach_the_verifier(tmp_path: Path, made: list[Harbor]) -> None:
    artifacts = '{source = "/app", exclude = ["*.log", "cache"]}, {source = "/app/kept.log", exclude = ["*"]}'
    toml = f'artifacts = [{artifacts}]\n[verifier]\nenvironment_mode = "separate"\n'
    test = TEST.replace("if [", "if [ -e /app/a.log -o -e /app/cache/x -o ! -e /app/kept.log ]; then exit; elif [")
    env = opened(made, write(tmp_path / "task", {"tests/test.sh": test}, toml))
    assert (await played(env, "mkdir cache; touch a.log kept.log cache/x; echo hello > answer.txt")).reward == 1.0
