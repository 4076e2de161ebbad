"""A file of prices: one section for each model, and the currency."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from atropos_cli.config.files import read_config
from atropos_cli.config.problems import short_path
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.prices import CURRENCY, PriceTable
from atropos_cli.errors import ConfigError
from atropos_cli.paths import home

_KEYS = (
    "a model has input, output, cached_input and reasoning, per million tokens; a name with a dot in it needs quotes"
)
log = logging.getLogger("atropos.costs")
_LEAST = 1e-4
"""Less than this for a million tokens is not a price of these years."""
_doubted: set[tuple[str, str]] = set()
_EXAMPLE = 'a section such as ["gpt-x*"] with input = 0.15 and output = 0.60, per million tokens'


def read_prices(given: str | JsonDict) -> JsonDict:
    """The table of a file, or of a section [prices], checked. Raises ConfigError."""
    if isinstance(given, str):
        path = Path(home(given))
        if not path.is_file():
            raise ConfigError(f"there is no file of prices {short_path(path)}", hint="--prices FILE.toml")
        where, table = f"{short_path(path)}: ", dict(read_config(path).tree)
        # A file written as a section of atropos.toml is taken as well.
        if set(table) == {"prices"} and isinstance(table["prices"], dict):
            table = table["prices"]
    else:
        where, table = "[prices]: ", dict(given)
    if isinstance(given, str) and not [name for name in table if name != CURRENCY]:
        raise ConfigError(f"{where}no model has a price there", hint=f"write {_EXAMPLE}")
    try:
        parsed = PriceTable.of(table)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # A key that is not known is mostly the missing one by another name: then that says it all.
        unknown = {item["loc"][:2] for item in problems if item["type"] == "extra_forbidden"}
        told = [item for item in problems if item["type"] != "missing" or item["loc"][:2] not in unknown]
        hint = _KEYS if unknown else None
        raise ConfigError(where + "; ".join(_problem(item) for item in told[:5]), hint=hint) from error
    _doubt(where, parsed)
    return table


def _doubt(where: str, table: PriceTable) -> None:
    """Say so where prices look as if they were meant for one token."""
    for name, price in table.models.items():
        if 0 < max(price.input, price.output) < _LEAST and (where, name) not in _doubted:
            _doubted.add((where, name))
            log.warning(
                "%s%s costs %g for a million tokens: is that the price of one token?", where, name, price.output
            )


def _problem(item: Any) -> str:
    place = [str(part) for part in item["loc"]]
    place = place[1:] if place[:1] == ["models"] else place
    text = "there is no such key" if item["type"] == "extra_forbidden" else str(item["msg"])
    if item["type"] == "model_type":
        return f"{'.'.join(place)}: expected {_EXAMPLE} (a name with a dot or star in it needs quotes)"
    return f"{'.'.join(place)}: {text}"
