"""Loading models with transformers, which while it does so changes what the whole process shares.

The default number format and device of torch, the functions that tie and initialise weights, the verbosity of its
logger: each is set and put back. Two loads at a time put back what the other had set, and leave a process in which
models come out without weights ("Cannot copy out of meta tensor") or in the wrong format. So they take turns.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partialmethod
from importlib import import_module

_TURN = threading.RLock()


@contextlib.contextmanager
def loading_model() -> Iterator[None]:
    """Wait for one's turn, then load without progress bars or advice: stderr belongs to atropos."""
    from transformers.utils import logging

    with _TURN:
        tqdm = import_module("tqdm.auto").tqdm
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        draw = tqdm.__init__
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        tqdm.__init__ = partialmethod(draw, disable=True)  # the GGUF reader does not heed the setting above
        try:
            yield
        finally:
            tqdm.__init__ = draw
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
