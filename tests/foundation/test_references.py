import functools
import re
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from palestra.errors import UsageError
from palestra.foundation.references import Hook, Role, load_main, parse_hook, reference_of, resolve


class Outer:
    class Inner:
        """A class in a class can be found by its name."""


def test_a_reference_leads_back_to_its_object() -> None:
    assert reference_of(Outer.Inner) == f"{__name__}:Outer.Inner"
    assert resolve("collections:OrderedDict.fromkeys")
    assert resolve(f"{__name__}:Outer.Inner") is Outer.Inner


@pytest.mark.parametrize("reference", ["nothing", ":name", "module:", ""])
def test_what_is_not_a_reference_is_refused(reference: str) -> None:
    with pytest.raises(UsageError, match="write module:Name"):
        resolve(reference)


def test_a_missing_name_is_reported() -> None:
    with pytest.raises(UsageError, match=r"module 'json' .*json.* has no 'decoder\.Nobody'"):
        resolve("json:decoder.Nobody")


@pytest.mark.parametrize("target", [lambda: None, functools.partial(int, 3)], ids=["lambda", "partial"])
def test_what_another_process_cannot_find_has_no_reference(target: object) -> None:
    with pytest.raises(UsageError, match="top level of a module"):
        reference_of(target)  # type: ignore[arg-type]


def test_a_script_is_loaded_once_without_running_and_its_classes_have_no_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    script.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_main(str(script))
    script.write_text("class Thing: pass\nif __name__ == '__main__': raise SystemExit")
    try:
        load_main(str(script))
        load_main(str(tmp_path / "not looked at again"))
        thing = resolve("__main__:Thing")
        with pytest.raises(UsageError, match="if __name__ =="):
            reference_of(thing)
    finally:
        del sys.modules["__palestra_main__"]


# ------------------------------------------------------------------------------------------------------------------- hooks


class Bounds(msgspec.Struct, frozen=True):
    low: Annotated[int, msgspec.Meta(ge=0)]
    high: int = 9

    def __call__(self, number: int) -> int:
        return min(max(number, self.low), self.high)


def scaled(number: int, by: int = 2) -> int:
    return number * by


def smallest(*numbers: int, floor: int = 0) -> int:
    return max(floor, *numbers)


ROLE = Role("limits.rule", ("number",), {"scaled": scaled, "bounds": f"{__name__}:Bounds"})


def test_a_hook_is_a_name_or_a_table_with_keywords() -> None:
    assert parse_hook("k", "a:b") == ("a:b", {})
    assert parse_hook("k", {"use": "a:b", "x": 1}) == ("a:b", {"x": 1})
    with pytest.raises(UsageError, match=r'k: write a name, or a table .*use = "module:name"'):
        parse_hook("k", {"x": 1})


def test_a_function_gets_the_keywords_and_a_class_is_created_with_them() -> None:
    assert ROLE.load("scaled")(3) == 6
    assert ROLE.load({"use": f"{__name__}:scaled", "by": 5})(3) == 15
    assert ROLE.load({"use": "bounds", "low": 4})(3) == 4
    assert ROLE.load({"use": f"{__name__}:smallest", "floor": 7})(3) == 7


def test_a_factory_is_called_for_the_part() -> None:
    part = Role("limits.rule", (), factory=True).load({"use": f"{__name__}:Bounds", "low": 4})()
    assert part == Bounds(4)


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("nothing", 'limits.rule = "nothing" is unknown: write one of scaled, bounds, or your own as module:name'),
        ({"use": "scaled", "bye": 1}, 'limits.rule: scaled has no keyword "bye". Did you mean by?'),
        ({"use": "scaled", "number": 1}, 'limits.rule: scaled has no keyword "number". It takes by.'),
        ({"use": "bounds"}, "limits.rule: Palestra calls bounds(), and that fails: "),
        ({"use": "bounds", "low": -1}, "limits.rule: Expected `int` >= 0"),
        ("json:loads.nothing", "has no 'loads.nothing'"),
        (f"{__name__}:ROLE", "is a Role: name a class or a function"),
        (f"{__name__}:Outer", "the class has no __call__"),
    ],
)
def test_a_hook_that_does_not_fit_names_the_key(hook: Hook, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        ROLE.load(hook)
