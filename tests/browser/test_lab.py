"""``autokernel lab`` in a real Chromium: the notebooks open."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import opened

pytestmark = pytest.mark.browser


def test_the_quickstart_opens_on_its_question(page: Any, lab: str) -> None:
    opened(page, lab).open("01_quickstart.ipynb")

    heading = page.locator(".jp-RenderedMarkdown h1").first
    heading.wait_for(timeout=60_000)
    assert heading.inner_text().strip("¶ ").endswith("?")
