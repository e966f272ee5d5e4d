import functools
import sys
from pathlib import Path

import pytest

from palestra.errors import UsageError
from palestra.references import load_main, reference_of, resolve


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


def test_a_missing_name_is_told() -> None:
    with pytest.raises(UsageError, match=r"module 'json' has no 'decoder\.Nobody'"):
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
