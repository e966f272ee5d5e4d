"""The browser of the tests that need one."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.viewer.browsing import Watched

FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # a page on a busy machine may take longer than the usual 5 s
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def watched(browser: "Browser", url: str) -> "Iterator[Watched]":
    """A page that may only read from ``url``, which a module defines."""
    from tests.viewer.browsing import watching

    yield from watching(browser, url)
