"""Seeds of everything random, and how to leave the random state as it was."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch (all devices)."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextlib.contextmanager
def same_random_state() -> Iterator[None]:
    """Whatever is drawn inside does not change what is drawn afterwards: evaluations leave training as it was."""
    import numpy
    import torch

    state, arrays = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        try:
            yield
        finally:
            random.setstate(state)
            numpy.random.set_state(arrays)
