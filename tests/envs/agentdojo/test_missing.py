"""Without the package, the ids are listed, and the message says what to install."""

import pytest

from palestra.errors import MissingExtra
from palestra.registry import list_envs, make, spec
from palestra.specs import is_importable


def test_the_ids_are_there() -> None:
    assert len(list_envs("tools:dojo-*")) == 8


@pytest.mark.skipif(is_importable("agentdojo"), reason="AgentDojo is installed")
def test_the_message_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r'"tools:dojo-slack" needs AgentDojo: pip install "palestra\[agentdojo\]"'):
        make("tools:dojo-slack")
    assert spec("tools:dojo-slack").missing()
