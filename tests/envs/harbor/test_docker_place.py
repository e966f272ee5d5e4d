"""Tasks of class 3 in containers of a real daemon: rewards, verifiers, users, services, and what Docker cannot do either."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from tests.envs.harbor.folders import STEP_FILES, STEPS, TOML, write
from tests.envs.harbor.test_playing import played, solved
from tests.sandbox.docker_daemon import docker_daemon, import_shell_image
from tests.sandbox.test_docker_shell import containers

from palestra.cli.app import run_command
from palestra.envs.harbor.env import Harbor
from palestra.errors import EnvError, GraderError, MissingData, MissingExtra, Unsupported, UsageError

IMAGE = "debian:12"
HEALTH = '[environment.healthcheck]\ncommand = "[ -s /run/up ]"\ninterval_sec = 0.2\nretries = 50\n'
START = '#!/bin/bash\n(sleep 0.3; echo up > /run/up; exec sleep 4000) &\nexec "$@"\n'
SERVICE = {
    "environment/Dockerfile": f'FROM {IMAGE}\nWORKDIR /app\nENV WORD=hello\nCOPY start.sh /\nENTRYPOINT ["/start.sh"]\n',
    "environment/start.sh": START,
    "solution/solve.sh": '#!/bin/bash\n[ -s /run/up ] && echo "$WORD" > /app/answer.txt\n',
}
"""A task whose image starts a service, which a box cannot do."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with docker_daemon() as address:
        import_shell_image(address, IMAGE)
        yield address


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


@pytest.fixture
def real(daemon: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DOCKER_HOST", daemon)
    return daemon


@pytest.fixture
async def made() -> AsyncIterator[list[Harbor]]:
    envs: list[Harbor] = []
    yield envs
    for env in envs:
        await env.close()


def opened(made: list[Harbor], folder: Path, files: Mapping[str, str | None] = {}, toml: str = "", options: str = "") -> Harbor:
    write(folder, {**SERVICE, **files}, TOML + HEALTH + toml)
    made.append(Harbor(f"{folder}?docker=yes{options}", command_seconds=20.0))
    return made[-1]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_the_solution_gets_full_reward_and_nothing_gets_none(real: str, tmp_path: Path, made: list[Harbor]) -> None:
    env = opened(made, tmp_path / "task")
    _, info = await env.reset(seed=0)
    assert info["place"] == "docker"
    step = await solved(env)
    assert (step.reward, step.info) == (1.0, {"success": True, "metrics": {"reward": 1.0}})
    assert (await played(env)).reward == 0.0
    beside = await played(env, "echo hello > answer.txt; sleep 3000 &")
    assert (beside.reward, beside.info["beside_verifier"]) == (1.0, ["sleep 3000"])
    assert (await played(env, "echo hello > answer.txt; alias cat=false; exit")).reward == 1.0
    assert (await played(env, "rm -r /app")).reward == 0.0
    await env.reset(seed=0)
    with pytest.raises(Unsupported, match="cannot be forked"):
        await env.fork()
    assert len(containers().split()) == 1
    await env.close()
    assert not containers()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["separate", "clean"])
async def test_a_verifier_has_a_container_of_its_own(mode: str, real: str, tmp_path: Path, made: list[Harbor]) -> None:
    separate = '[verifier]\nenvironment_mode = "separate"\n' if mode == "separate" else ""
    write(tmp_path / "task", SERVICE, ('artifacts = ["/app/answer.txt"]\n' if separate else "") + TOML + HEALTH + separate)
    env = Harbor(f"{tmp_path}/task?docker=yes{'&verifier=clean' if mode == 'clean' else ''}")
    made.append(env)
    hacked = "echo '#!/bin/sh' > /bin/cat; echo 'echo hello' >> /bin/cat; echo 1 > /logs/verifier/reward.txt"
    assert (await played(env, hacked)).reward == 0.0
    assert (await solved(env)).reward == 1.0
    await env.close()
    assert not containers()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_users_steps_and_failing_verifiers_are_as_in_a_box(real: str, tmp_path: Path, made: list[Harbor]) -> None:
    right = '[ "$(cat /app/answer.txt)" = bob ] && [ "$(id -un)" = root ]'
    test = f"#!/bin/bash\n{right} && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    dockerfile = SERVICE["environment/Dockerfile"] + "RUN chown bob /app\n"
    files = {"tests/test.sh": test, "environment/Dockerfile": dockerfile}
    env = opened(made, tmp_path / "user", files, '[agent]\nuser = "bob"\n')
    assert (await played(env, "id -un > answer.txt; touch /etc/x || true")).reward == 1.0
    steps = {**STEP_FILES, "steps/two/tests/test.sh": "#!/bin/sh\ncp /app/two.txt /logs/verifier/reward.txt\n"}
    write(
        tmp_path / "steps",
        {**SERVICE, **steps},
        STEPS.replace("STRATEGY", "mean").replace("[[steps]]", HEALTH + "[[steps]]", 1),
    )
    made.append(Harbor(f"{tmp_path}/steps?docker=yes"))
    assert (await solved(made[-1])).reward == 0.75
    for script, words in (
        ("true", "has written neither"),
        ("echo nan > /logs/verifier/reward.txt", "not finite"),
        ("sleep 99", "1 s"),
    ):
        broken = opened(made, tmp_path / words, {"tests/test.sh": f"#!/bin/sh\n{script}\n"}, "[verifier]\ntimeout_sec = 1.0\n")
        with pytest.raises(GraderError, match=words):
            await played(broken)
        await broken.close()
    sick = opened(made, tmp_path / "sick", {"environment/start.sh": '#!/bin/bash\nexec "$@"\n'})
    with pytest.raises(EnvError, match="not healthy"):
        await sick.reset(seed=0)
    for env in made:
        await env.close()
    assert not containers()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_nothing_is_fetched_without_trust(real: str, tmp_path: Path, made: list[Harbor]) -> None:
    for name, text, words in (
        ("base", "FROM nowhere:1\n", "the Docker daemon has no image nowhere:1.*trust=True"),
        ("run", f"FROM {IMAGE}\nRUN apt-get update\n", "RUN apt-get update needs a network.*trust=True"),
        ("stages", f"FROM {IMAGE} AS a\nFROM {IMAGE}\n", "a second FROM.*trust=True"),
        ("syntax", f"# syntax = other/frontend\nFROM {IMAGE}\n", "# syntax names another image.*trust=True"),
    ):
        env = opened(made, tmp_path / name, {"environment/Dockerfile": text})
        with pytest.raises((MissingData, Unsupported), match=words):
            await env.reset(seed=0)
    write(tmp_path / "image", SERVICE, TOML + 'docker_image = "nowhere:2"\n' + HEALTH)
    made.append(Harbor(f"{tmp_path}/image?docker=yes"))
    with pytest.raises(MissingData, match="no image nowhere:2"):
        await made[-1].reset(seed=0)
    alone = opened(made, tmp_path / "offline", {"environment/Dockerfile": f"FROM {IMAGE}\nRUN echo > /dev/tcp/192.0.2.1/80\n"})
    with pytest.raises(EnvError, match="docker build failed"):
        await alone.reset(seed=0)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_the_check_plays_class_3_in_docker_only_if_asked(real: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "tasks/service", SERVICE, TOML + HEALTH)
    write(tmp_path / "tasks/gpu", {}, TOML + "gpus = 1\n")
    assert run_command(["harbor", "check", str(tmp_path / "tasks")]) == 0
    assert capsys.readouterr().out.count("not run") == 4  # two verdicts, two reasons
    assert run_command(["harbor", "check", str(tmp_path / "tasks"), "--docker"]) == 0
    shown = capsys.readouterr().out
    assert "service                          class 3  solution 1 nothing 0" in shown
    assert "not run: class: environment: the task needs a GPU or TPU" in shown
    assert not containers()


async def test_without_the_option_or_the_daemon_a_sentence_says_so(tmp_path: Path, made: list[Harbor]) -> None:
    write(tmp_path / "task", SERVICE, TOML + HEALTH)
    made.append(Harbor(f"{tmp_path}/task"))
    with pytest.raises(Unsupported, match=r"needs docker: environment\.healthcheck.*\?docker=yes"):
        await made[-1].reset(seed=0)
    made.append(Harbor(f"{tmp_path}/task?docker=yes"))
    with pytest.raises(MissingExtra, match=r"docker is not on the PATH|no Docker daemon answers"):
        await made[-1].reset(seed=0)
    for name, toml, words in (
        ("gpu", "gpus = 1\n", "GPU"),
        ("hosts", 'network_mode = "allowlist"\nallowed_hosts = ["example.org"]\n', "allowed hosts"),
        ("windows", 'os = "windows"\n', "windows"),
    ):
        write(tmp_path / name, SERVICE, f"[environment]\n{toml}{HEALTH}")
        made.append(Harbor(f"{tmp_path}/{name}?docker=yes"))
        with pytest.raises(Unsupported, match=f"docker lacks, too: .*{words}"):
            await made[-1].reset(seed=0)


def test_the_check_does_not_fail_a_task_because_there_is_no_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "task", SERVICE, TOML + HEALTH)
    assert run_command(["harbor", "check", str(tmp_path / "task"), "--docker"]) == 0
    shown = capsys.readouterr().out
    assert "solution - nothing -" in shown
    assert "not run: class: " in shown
    with pytest.raises(UsageError, match="add --docker"):
        run_command(["harbor", "check", str(tmp_path / "task"), "--trust"])
