"""The texts of `proto/vectors`: what is redacted, and what stays legible."""

import pytest
from vectors import rows

from cloudprovider_sdk import scrub


@pytest.mark.parametrize("row", rows("scrubbing"))
def test_texts_are_scrubbed_as_in_every_sdk(row: dict[str, str]) -> None:
    clean = scrub.text(row["text"])
    if hides := row.get("hides"):
        assert hides not in clean
        assert scrub.REDACTED in clean
    else:
        assert clean == row["becomes"]
