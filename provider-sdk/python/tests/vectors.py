"""Test vectors that all SDKs share."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[3] / "proto/vectors"


def rows(name: str) -> list[dict[str, Any]]:
    """Return all rows of a file."""
    found: list[dict[str, Any]] = json.loads((_FOLDER / f"{name}.json").read_text())
    assert found
    return found
