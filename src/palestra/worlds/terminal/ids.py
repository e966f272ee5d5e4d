"""The ids of the terminal worlds: one per family, with three levels."""

from palestra.registry import Need, register

__all__ = ["BOX"]

BOX = (
    Need(label="bubblewrap", program="bwrap", fix="apt-get install bubblewrap"),
    Need(label="pyseccomp", module="pyseccomp", extra="sandbox"),
)
_TURNS = {"easy": 10, "medium": 15, "hard": 20}
_ABOUT = {
    "text": ("Count, rank and join words in text files.", ()),
    "logs": ("Answer questions about the log of a web server.", ()),
    "tables": ("Repair a CSV file, a JSON Lines file or a SQLite database.", ()),
    "git": ("Find commits and lost files in the history of a git repository.", ("git",)),
    "build": ("Mend a C program that does not build.", ("gcc", "make")),
    "tests": ("Mend a small Python package whose tests fail.", ()),
    "permissions": ("Set file modes and write cron schedules by a policy.", ()),
    "archives": ("Recover files from nested, split and mislabeled archives.", ()),
    "processes": ("Find, read and end the right one of many processes.", ()),
    "drift": ("Bring configuration files back to a baseline, except where exceptions allow otherwise.", ()),
    "pipeline": ("Build a report from many data files.", ()),
    "golf": ("Write a short shell script that transforms its input.", ()),
}


for family, (about, programs) in _ABOUT.items():
    needs = [Need(label=name, program=name, fix=f"apt-get install {name}") for name in programs]
    register(
        f"terminal:{family}-v0",
        "palestra.worlds.terminal.env:Terminal",
        levels={level: {"level": level, "max_turns": turns} for level, turns in _TURNS.items()},
        default_level="easy",
        kwargs={"family": family},
        tags={"world", "terminal"},
        needs=[*BOX, *needs],
        description=about,
    )
