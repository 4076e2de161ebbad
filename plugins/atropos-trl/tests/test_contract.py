"""Both trainers keep the contract that every trainer keeps."""

from __future__ import annotations

from typing import ClassVar

import pytest
from atropos_authoring import TrainerContract

pytest.importorskip("trl")
pytestmark = pytest.mark.model


class TestNative(TrainerContract):
    target = "native"
    options: ClassVar = {"learning_rate": 0.02}
    steps = 40


class TestTrl(TrainerContract):
    target = "trl"
    options: ClassVar = {"learning_rate": 0.02}
    steps = 40
