"""The notebook of the docs runs as written, inside the event loop of a kernel."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "first-steps.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_tables_and_progress() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    played, evaluated, mean, _ = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert "<table><caption>game:GuessTheNumber-v0-easy, played by oracle" in shown(played)["text/html"]
    assert "95 % interval" in shown(evaluated)["text/html"]
    assert shown(mean)["text/plain"] == "1.0"
    assert any("playing 20/20" in output.get("text", "") for output in played)
    assert any("evaluating 20/20" in output.get("text", "") for output in evaluated)


def shown(outputs: list[dict[str, object]]) -> dict[str, str]:
    [result] = [output["data"] for output in outputs if output["output_type"] == "execute_result"]
    assert isinstance(result, dict)
    return result
