"""Number formats: what a step is computed in, and loss scaling for fp16. Weights that are trained stay fp32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from atropos_trl.common import machine

if TYPE_CHECKING:
    import torch

Wanted = Literal["auto", "fp32", "bf16", "fp16"]
Format = Literal["fp32", "bf16", "fp16"]
_FIRST, _DOWN, _MOST = 2.0**16, 4.0, 2.0**24
_GROW_AFTER = 1000
"""Steps without an overflow after which the scale is doubled."""


def pick(wanted: Wanted, device: torch.device) -> Format:
    """See machine.pick_precision. fp16 is taken where it is asked for: on any GPU, and emulated on a CPU."""
    return "fp16" if wanted == "fp16" else machine.pick_precision(wanted, device)


def half(number: Format) -> Any:
    """The torch dtype of activations; None for fp32."""
    import torch

    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[number]


class Scale:
    """The loss is multiplied by `value`, so that small gradients do not vanish in fp16; gradients are divided by it.

    A gradient that overflows makes the scale smaller, and the step is computed again: its rollouts are not lost.
    """

    def __init__(self, number: Format) -> None:
        self.used = number == "fp16"
        self.value = _FIRST if self.used else 1.0
        self.overflows = 0
        self._good = 0

    def again(self, loss: float, norm: float) -> bool:
        """Did this scale overflow, and is there a smaller one to try? A loss of NaN has another cause."""
        if math.isfinite(norm):
            self._good += 1
            if self.used and self._good % _GROW_AFTER == 0:
                self.value = min(_MOST, 2 * self.value)
            return False
        if not self.used or not math.isfinite(loss) or self.value <= 1.0:
            return False
        self.value, self._good = max(1.0, self.value / _DOWN), 0
        self.overflows += 1
        return True

    def state(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"value": self.value, "good": self._good, "overflows": self.overflows}

    def load(self, state: dict[str, float]) -> None:
        """As a checkpoint has it; one of another number format has nothing to say."""
        if self.used and state.get("value", 1.0) > 1.0:
            self.value, self._good = state["value"], int(state["good"])
            self.overflows = int(state["overflows"])

    def metrics(self) -> dict[str, float]:
        return {"loss_scale": self.value, "overflows": float(self.overflows)} if self.used else {}
