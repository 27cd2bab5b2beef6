"""What the whole test suite shares: `gpu` and `browser` tests are skipped, saying why, where they cannot run."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


@functools.cache
def _missing_gpu() -> str:
    import torch

    return "" if torch.cuda.is_available() else "no GPU: torch.cuda.is_available() is False"


@functools.cache
def _missing_browser() -> str:
    if any(shutil.which(name) for name in CHROMIUM_NAMES):
        return ""
    return f"no browser: none of {', '.join(CHROMIUM_NAMES)} is on PATH"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in (("gpu", _missing_gpu), ("browser", _missing_browser)):
        if item.get_closest_marker(marker) and missing():
            pytest.skip(missing())


@pytest.fixture(scope="session")
def _test_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _machine_of_nobody(_test_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with no key, no git identity and an empty cache, so that no test depends on whose machine it is."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", _test_cache)


@pytest.fixture(autouse=True)
def _gradients_as_before() -> Iterator[None]:
    """Nothing leaves gradients switched off: a person trains a model in the same notebook."""
    yield
    torch = sys.modules.get("torch")
    assert torch is None or torch.is_grad_enabled(), "gradients were left switched off"
