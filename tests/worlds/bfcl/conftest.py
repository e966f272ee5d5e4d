"""The tests read BFCL's package, which ``palestra prefetch bfcl`` fetches. In CI it must be there."""

import os

import pytest

from palestra.errors import MissingData
from palestra.worlds.bfcl.wheels import BFCL


@pytest.fixture(autouse=True, scope="session")
def bfcl_package() -> None:
    try:
        BFCL.folder()
    except MissingData as missing:
        if os.environ.get("PALESTRA_TEST_EXTRAS") == "all":
            raise
        pytest.skip(str(missing))
