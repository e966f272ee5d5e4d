"""Tasks that name users: the Dockerfile's USER and chown, agent.user, verifier.user."""

import io
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.worlds.harbor.folders import TOML, write
from tests.worlds.harbor.test_playing import opened, played, solved

from palestra.errors import EnvError, Unsupported
from palestra.sandbox.roots import RootCache
from palestra.sandbox.shell import Shell, ShellOutcome
from palestra.sandbox.users import users_missing
from palestra.worlds.harbor.classes import classify, recipe_of
from palestra.worlds.harbor.env import Harbor
from palestra.worlds.harbor.reading import read_task
from palestra.worlds.harbor.users import account_of

NEEDS_USERS = pytest.mark.skipif(bool(users_missing()), reason=users_missing() or "-")
DOCKERFILE = """FROM debian:12
RUN useradd -m -U -u 1500 bob && mkdir /app && chown bob /app
WORKDIR /app
USER bob
RUN id -un > who.txt && echo ok > ~/home.txt && mv /home/bob/home.txt .
"""
TEST = """#!/bin/bash
[ "$(cat /app/answer.txt)" = bob ] && [ "$(stat -c %U /app/answer.txt)$(cat /app/who.txt)$(id -un)" = bobbobroot ] && r=1
echo ${r:-0} > /logs/verifier/reward.txt
"""
OF_IMAGE = """#!/bin/bash
mine="$(stat -c %U /app/answer.txt)$(cat /app/who.txt)$(id -un)"
touch /app/written && [ "$(cat /app/answer.txt) $mine $HOME" = "bob bobbobbob /home/bob" ] && r=1
echo ${r:-0} > /logs/verifier/reward.txt
"""
SOLVE = "#!/bin/sh\nid -un > /app/answer.txt\n"
USERS = f'{TOML}[agent]\nuser = "bob"\n[verifier]\nuser = "root"\n'
FILES = {"environment/Dockerfile": DOCKERFILE, "tests/test.sh": TEST, "solution/solve.sh": SOLVE}


@NEEDS_USERS
@pytest.mark.slow
async def test_agent_and_verifier_are_the_users_that_the_task_names(tmp_path: Path, made: list[Harbor]) -> None:
    folder = write(tmp_path / "task", FILES, USERS)
    assert classify(read_task(folder), {"debian:12"}).kind == 1
    env = opened(made, folder)
    assert (await solved(env)).reward == 1.0
    daemon = await played(env, "sleep 600 &", "id -un > answer.txt; touch /usr/local/x || pwd")
    assert daemon.reward == 1.0
    await env.reset(seed=0)
    with pytest.raises(Unsupported, match="another user"):
        await env.fork()
    of_docker = write(tmp_path / "docker", {**FILES, "tests/test.sh": OF_IMAGE}, TOML)
    (of_docker / "solution/solve.sh").chmod(0o600)
    for options in ("", "&verifier=clean"):
        solving = opened(made, of_docker, options)
        assert (await solved(solving)).reward == 1.0, "without a word, both are the image's user"
    assert (tmp_path / "home/harbor/layers").stat().st_mode & 0o777 == 0o700


@NEEDS_USERS
@pytest.mark.slow
async def test_the_agent_does_not_say_who_the_verifier_is(tmp_path: Path, made: list[Harbor]) -> None:
    names = f'{TOML}[agent]\nuser = "root"\n[verifier]\nuser = "bob"\n'
    test = "#!/bin/sh\nid -u > /logs/verifier/reward.txt\n"
    env = opened(made, write(tmp_path / "task", {**FILES, "tests/test.sh": test}, names))
    forged = "printf '#!/bin/sh\\necho 0:0:/root\\n' > /usr/local/bin/getent; chmod 755 /usr/local/bin/getent"
    assert (await played(env, forged, "sed -i s/1500/0/ /etc/passwd /etc/group")).reward == 1500.0


async def test_the_numbers_of_a_user_are_numbers() -> None:
    class Answering(Shell):
        def __init__(self, text: str) -> None:
            self._text = text

        async def run(self, command: str, *, wall_seconds: float | None = None) -> ShellOutcome:
            return ShellOutcome(self._text.encode(), 0)

    assert (await account_of(Answering("5:6:/h\n7\ngroups=6 8\n"), "bob:dev")) == ("5", "7", "/h", "6,8")
    for text, user in (
        ("0;reboot:6:/h\n", "bob"),
        ("5:6 x:/h\n", "bob"),
        ("5:6:/h\n", "bob:none"),
        ("5:6:/h\ngroups=6 ;\n", "bob"),
    ):
        with pytest.raises(EnvError, match="no user bob"):
            await account_of(Answering(text), user)


def archive(path: Path) -> Path:
    """A tar archive with a user bob, to whom a file belongs."""
    with tarfile.open(path, "w") as members:
        for name, text, owner in (
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\nbob:x:1500:1500::/home/bob:/bin/sh\nidle:x:7:7::/:/bin/sh\n", 0),
            ("home/bob/f", "x", 1500),
        ):
            one = tarfile.TarInfo(name)
            one.size, one.uid, one.gid = len(text), owner, owner
            members.addfile(one, io.BytesIO(text.encode()))
    return path


@NEEDS_USERS
def test_users_whose_files_an_image_has_lost_need_docker(tmp_path: Path) -> None:
    cache = RootCache(tmp_path / "cache")
    key = cache.add_archive("debian:12", archive(tmp_path / "image.tar"))
    places = {
        "agent": '[agent]\nuser = "bob"\n',
        "number": "[verifier]\nuser = 1500\n",
        "plain": "",
        "idle": '[agent]\nuser = "idle"\n',
    }
    tasks = {name: read_task(write(tmp_path / name, {}, TOML + text)) for name, text in places.items()}
    of_docker = {"environment/Dockerfile": "FROM debian:12\nUSER bob\nRUN true\nUSER root\n"}
    tasks["docker"] = read_task(write(tmp_path / "docker", of_docker))
    of_box = {"environment/Dockerfile": "FROM debian:12\nRUN useradd alice\nUSER alice\n"}
    tasks["box"] = read_task(write(tmp_path / "box", of_box))
    found = {name: classify(task, cache.images(), cache.find) for name, task in tasks.items()}
    assert sorted(name for name, one in found.items() if one.kind == 3) == ["agent", "docker", "number"]
    assert [found[name].kind for name in ("plain", "idle", "box")] == [1, 1, 1]
    assert found["agent"].because == "agent.user is bob: the image has files of this user, and unpacking gave them to root"
    config = tmp_path / "cache/roots" / key / "image.json"
    config.write_text('{"User": "bob", "Owners": [1500]}')
    plain = tasks["plain"]
    cache._name(plain.identity, key)
    assert "USER bob" in classify(plain, cache.images(), cache.find).because, "docker has built it, and its user is bob"
    root = cache.find("debian:12")
    assert root is not None
    assert recipe_of(plain.environment, plain.config.environment, root).user == "bob"
    config.write_text("{}")
    assert "older version" in classify(tasks["idle"], cache.images(), cache.find).because
