"""A folder with one of everything that a user may name by mistake, for the tests of wrong uses."""

from pathlib import Path

from palestra.evaluation import evaluate

__all__ = ["furnish"]

MODULES = {
    "broken": "def answer(:\n    pass\n",
    "raises": "\n1 / 0\n",
    "needy": "import surely_not_installed\n",
    "things": "number = 3\nclass Plain:\n    pass\nclass Needs:\n    def __init__(self, x):\n        pass\n",
}
RECIPE = '[model]\npath = "tiny:game:GuessTheNumber-v0-easy"\n[envs]\n"game:GuessTheNumber-v0-easy" = 1.0\n'
FILES = {
    "notes.txt": "nothing that palestra knows\n",
    "empty": "",
    "empty.jsonl": "",
    "lines.jsonl": '{"no": "text"}\n',
    "torn.jsonl": '{"text": "one"}\n{"text": \n',
    "corpus.jsonl": '{"text": "the hash table was invented"}\n',
    "syntax.toml": "steps = = 3\n",
    "unknown.toml": "stepz = 3\n",
    "types.toml": f'steps = "many"\n{RECIPE}',
    "good.toml": f"steps = 1\n{RECIPE}",
    "pools.toml": "pools = 3\n",
    "token": "0123456789abcdefghijklmnopqrstuvwxyz\n",
    "short_token": "hello\n",
    "no_token": "\n",
    "open_token": "0123456789abcdefghijklmnopqrstuvwxyz\n",
    "bad_table.json": "[1, 2",
}
IN_FOLDERS = {
    "full/thesis.tex": b"\\end{document}",
    "other/trajectories.jsonl": b'{"this": "is no trajectory"}\n',
    "garbage/trajectories.jsonl": b"\xff\xfe\x00not json\n",
    "training/config.json": b"{}",
    "training/metrics.jsonl": b"not json\n",
    "learned/config.json": b'{"run": "training"}',
    "learned/metrics.jsonl": b'{"step": 0, "reward": 0.1}\n{"step": 1, "reward": 0.2}\n',
    "fresh/config.json": b"{}",
}


def furnish(folder: Path) -> None:
    """Fill ``folder``."""
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    for name, text in FILES.items():
        (folder / name).write_text(text)
        if "token" in name and name != "open_token":
            (folder / name).chmod(0o600)
    (folder / "binary").write_bytes(bytes(range(256)) * 4)
    (folder / "hollow").mkdir()
    for name, content in IN_FOLDERS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    evaluate("game:GuessTheNumber-v0-easy", "random", n=3, out=folder / "run")
