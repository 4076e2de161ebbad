"""A file of prices: one section for each model, and the currency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from atropos_cli.config.files import read_config
from atropos_cli.config.problems import short_path
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.prices import CURRENCY, PriceTable
from atropos_cli.errors import ConfigError
from atropos_cli.paths import home

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
        PriceTable.of(table)
    except ValidationError as error:
        raise ConfigError(where + "; ".join(_problem(item) for item in error.errors(include_url=False)[:5])) from error
    return table


def _problem(item: Any) -> str:
    place = [str(part) for part in item["loc"]]
    place = place[1:] if place[:1] == ["models"] else place
    text = "there is no such key" if item["type"] == "extra_forbidden" else str(item["msg"])
    if item["type"] == "model_type":
        return f"{'.'.join(place)}: expected {_EXAMPLE} (a name with a dot or star in it needs quotes)"
    if item["type"] == "extra_forbidden":
        text += " (input, output, cached_input, reasoning; a name with a dot in it needs quotes)"
    return f"{'.'.join(place)}: {text}"
