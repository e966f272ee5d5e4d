"""A bridge whose framework is missing says which version was tried."""

import sys

import pytest

from palestra.errors import MissingExtra
from palestra.integrations import skyrl, tinker, verifiers


@pytest.mark.parametrize(
    ("package", "use", "tried"),
    [
        ("skyrl_gym", skyrl.register, "skyrl-gym==0.4.0"),
        ("tinker_cookbook", lambda: tinker.task_source([], tinker.GroupOptions("m")), "tinker-cookbook==0.5.8"),
        ("verifiers.v1", verifiers.plugin, "verifiers==0.4.0"),
    ],
)
def test_the_message_names_the_version_that_was_tried(
    package: str, use: object, tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (package, f"{package}.rl", f"{package}.envs.base_text_env"):
        monkeypatch.setitem(sys.modules, part, None)
    for function in (skyrl.text_env, tinker._tinker, verifiers.plugin):
        function.cache_clear()
    with pytest.raises(MissingExtra, match=tried):
        use()  # type: ignore[operator]
