"""litellm itself, imported on first use (seconds) so that it keeps to this machine."""

from __future__ import annotations

import logging
import os
from typing import Any

_HERE_ONLY = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # prices as they came with the package, none from the network
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",  # no .env read behind the user's back
}


def litellm() -> Any:
    """The module. Nothing is sent anywhere but requests to the model's provider."""
    for name, value in _HERE_ONLY.items():
        os.environ.setdefault(name, value)
    import litellm as library

    library.telemetry = False
    library.suppress_debug_info = True  # it prints advertisements of its own on errors
    # Its log repeats what the errors say, with the request's text in it.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return library
