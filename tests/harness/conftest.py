from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of synthesised models for all tests of a session: gpt2-mini takes 50 MB in each format."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def _use_model_cache(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(model_cache))
