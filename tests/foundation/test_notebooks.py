import pytest

import palestra
from palestra.foundation.notebooks import ProgressLine, html_table, in_notebook
from palestra.trajectory import TrajectoryGroup


def test_texts_are_escaped_and_cut_and_rows_are_counted() -> None:
    page = html_table("<b>", ("a",), [("<script>" + "x" * 1000,)] * 60)
    assert "<script>" not in page
    assert "<b>" not in page
    assert "x" * 401 not in page
    assert "10 more" in page


def test_a_progress_line_writes_over_itself_and_ends_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine("playing")
    for done in range(1, 4):
        line.show(done, 3)
    assert capsys.readouterr().err == "\rplaying 1/3\rplaying 3/3\n"


def test_episodes_groups_and_reports_show_themselves_as_tables() -> None:
    assert not in_notebook()
    played = palestra.collect("game:GuessTheNumber-v0-easy", "oracle", n=1, group_size=2)
    assert played[0]._repr_html_().count("<tr>") == 1 + len(played[0].turns)
    assert "reward 1.00, terminated" in played[0]._repr_html_()
    assert "2 episodes of one task" in TrajectoryGroup(played[0].task, tuple(played))._repr_html_()
    failed = palestra.collect("game:GuessTheNumber-v0-easy", lambda text: 1 / 0, n=1)
    assert "no reward, error" in failed[0]._repr_html_()
    report = palestra.evaluate("game:GuessTheNumber-v0-easy", "oracle", n=3)
    assert "1.00 [" in report._repr_html_()


async def test_the_blocking_verbs_work_inside_a_running_loop() -> None:
    assert len(palestra.collect("game:GuessTheNumber-v0-easy", "random", n=2)) == 2
    assert palestra.evaluate("game:GuessTheNumber-v0-easy", "oracle", n=2).suite.scored == 2
