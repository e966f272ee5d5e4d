"""Tasks that name users: the Dockerfile's USER and chown, agent.user, verifier.user."""

from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.envs.harbor.folders import TOML, write
from tests.envs.harbor.test_playing import home, made, opened, played, solved  # noqa: F401

from palestra.envs.harbor.classes import classify
from palestra.envs.harbor.env import Harbor
from palestra.envs.harbor.reading import read_task
from palestra.envs.harbor.users import needs_users
from palestra.errors import EnvError, Unsupported
from palestra.sandbox.users import users_missing

NEEDS_USERS = pytest.mark.skipif(bool(users_missing()), reason=users_missing() or "-")
DOCKERFILE = """FROM debian:12
RUN useradd -m -U -u 1500 bob && mkdir /app && chown bob /app
WORKDIR /app
USER bob
RUN id -un > who.txt
"""
TEST = """#!/bin/bash
[ "$(cat /app/answer.txt)" = bob ] && [ "$(stat -c %U /app/answer.txt)$(cat /app/who.txt)$(id -un)" = bobbobroot ] && r=1
echo ${r:-0} > /logs/verifier/reward.txt
"""
SOLVE = "#!/bin/sh\nid -un > /app/answer.txt\n"
USERS = f'{TOML}[agent]\nuser = "bob"\n[verifier]\nuser = "root"\n'
FILES = {"environment/Dockerfile": DOCKERFILE, "tests/test.sh": TEST, "solution/solve.sh": SOLVE}


@NEEDS_USERS
@pytest.mark.slow
async def test_agent_and_verifier_are_the_users_that_the_task_names(tmp_path: Path, made: list[Harbor]) -> None:  # noqa: F811
    folder = write(tmp_path / "task", FILES, USERS)
    assert classify(read_task(folder), {"debian:12"}).kind == 1
    env = opened(made, folder)
    assert (await solved(env)).reward == 1.0
    daemon = await played(env, "sleep 600 &", "id -un > answer.txt; touch /usr/local/x || pwd")
    assert daemon.reward == 1.0
    await env.reset(seed=0)
    with pytest.raises(Unsupported, match="another user"):
        await env.fork()
    of_docker = write(tmp_path / "docker", {**FILES, "tests/test.sh": TEST.replace("root", "bob")}, TOML)
    assert (await solved(opened(made, of_docker))).reward == 1.0, "without a word, both are the image's user"


@NEEDS_USERS
async def test_a_user_that_is_missing_is_a_sentence(tmp_path: Path, made: list[Harbor]) -> None:  # noqa: F811
    folder = write(tmp_path / "task", {}, f'{TOML}[agent]\nuser = "alice"\n')
    with pytest.raises(EnvError, match="no user alice"):
        await opened(made, folder).reset(seed=0)


def test_only_tasks_about_users_get_them(tmp_path: Path) -> None:
    assert not needs_users(read_task(write(tmp_path / "plain")))
    assert needs_users(read_task(write(tmp_path / "number", {}, f"{TOML}[verifier]\nuser = 1000\n")))
    assert needs_users(read_task(write(tmp_path / "solve", {"solution/solve.sh": "#!/bin/sh\nchown 5 /app\n"})))
    assert not needs_users(read_task(write(tmp_path / "root", {}, f'{TOML}[agent]\nuser = "root"\n')))
