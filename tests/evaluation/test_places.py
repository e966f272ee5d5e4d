"""An environment that is named by an address is played at that address, whichever call names it."""

import asyncio
from pathlib import Path

import pytest

from palestra.errors import UsageError
from palestra.evaluation import evaluate, evaluate_async, report_on
from palestra.evaluation.folder import read_config
from palestra.rollouts import collect, read_trajectories
from palestra.serve import EnvServer
from palestra.suite.mixture import mix

SUMS = "math:Sums"
NOWHERE = f"remote:http://127.0.0.1:9#{SUMS}"
TOKEN = "a-token-for-tests-0123456789"


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_TOKEN", TOKEN)


def test_nothing_is_played_here_when_the_server_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="PALESTRA_TOKEN_HOST is not set"):
        evaluate(NOWHERE, "oracle", n=2, out=tmp_path / "run")
    monkeypatch.setenv("PALESTRA_TOKEN_HOST", "127.0.0.1:9")
    for name in (NOWHERE, "remote:http://127.0.0.1:9#no:Such-v0"):  # whether it has an id is the server's business
        with pytest.raises(UsageError, match="cannot be reached"):
            evaluate(name, "oracle", n=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
async def test_the_server_plays_what_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EnvServer(SUMS, TOKEN) as server:
        monkeypatch.setenv("PALESTRA_TOKEN_HOST", server.url.removeprefix("http://"))
        name = f"remote:{server.url}#{SUMS}"
        report = await evaluate_async(name, "oracle", n=4, out=tmp_path)
        assert report.suite.scored == 4
    # With the server gone, nothing is played: what came before was played there.
    with pytest.raises(UsageError, match="cannot be reached"):
        await evaluate_async(name, "oracle", n=1)
    here = await asyncio.to_thread(evaluate, SUMS, "oracle", n=4, out=tmp_path / "here")
    assert here.suite.score == report.suite.score
    told = {trajectory.digest() for trajectory in read_trajectories(tmp_path / "trajectories.jsonl")}
    assert told == {trajectory.digest() for trajectory in read_trajectories(tmp_path / "here" / "trajectories.jsonl")}
    assert read_config(tmp_path).about[f"{SUMS} is played at"] == name
    with pytest.raises(UsageError, match="is played at"):
        await evaluate_async(SUMS, "oracle", n=4, out=tmp_path)


def test_a_mixture_plays_an_address_at_that_address() -> None:
    played = collect(mix({NOWHERE: 1.0}, n=1), "oracle", retries=0, deadline=3.0)
    assert report_on(played).suite.scored == 0


def test_one_rollout_cannot_play_one_id_in_two_places() -> None:
    with pytest.raises(UsageError, match="names two different environments"):
        collect([NOWHERE, SUMS], "oracle", n=2)
