"""Training reports nothing to the makers of its libraries."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("huggingface_hub")

ASK = """
from huggingface_hub.utils import _telemetry as telemetry
from atropos_trl.common.machine import send_no_telemetry

telemetry._send_telemetry_in_thread = lambda **kwargs: None
send_no_telemetry()
telemetry.send_telemetry("trl/test", library_name="trl")
print(telemetry._TELEMETRY_THREAD is None)
"""


@pytest.mark.parametrize(("value", "silent"), [(None, True), ("1", True), ("0", False)])
def test_telemetry_is_sent_only_if_the_user_allows_it(value: str | None, silent: bool) -> None:
    names = ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    env = {name: text for name, text in os.environ.items() if name not in names}
    env |= {"HF_HUB_DISABLE_TELEMETRY": value} if value is not None else {}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(silent)
