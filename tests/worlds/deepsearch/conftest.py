from collections.abc import Iterator

import pytest

pytest.importorskip("tantivy", reason="tantivy is not installed")


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of the tests do not lie in the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALESTRA_HOME", str(tmp_path_factory.mktemp("home")))
        yield
