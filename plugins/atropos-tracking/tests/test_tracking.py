"""What the distribution offers, and the checksum of its event files. How trackers are used: tests/unit/tracking."""

from __future__ import annotations

import atropos_tracking
import pytest
from atropos_tracking.eventfile import crc32c

from atropos_cli.sdk.outputs import Tracker


def test_two_trackers_are_offered_and_can_be_loaded() -> None:
    specs = {spec.name: spec for spec in atropos_tracking.atropos_register_trackers()}
    assert specs.keys() == {"tensorboard", "wandb"}
    for spec in specs.values():
        assert issubclass(spec.load(), Tracker)


@pytest.mark.parametrize(("data", "checksum"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA)])
def test_checksums_are_those_of_rfc_3720(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum
