"""Without the package, the ids are listed, and the message says what to install."""

import re

import pytest

from palestra.errors import MissingExtra
from palestra.installation import how_to_install
from palestra.registry import list_envs, make, spec
from palestra.specs import is_importable


def test_the_ids_are_there() -> None:
    assert len(list_envs("tools:dojo-*")) == 8


@pytest.mark.skipif(is_importable("agentdojo"), reason="AgentDojo is installed")
def test_the_message_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=re.escape(f'"tools:dojo-slack" needs AgentDojo: {how_to_install("agentdojo")}')):
        make("tools:dojo-slack")
    assert spec("tools:dojo-slack").missing()
