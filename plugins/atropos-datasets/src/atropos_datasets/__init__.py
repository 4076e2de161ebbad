"""Data sets as environments for atropos.

This module is the plugin's manifest. It imports nothing heavy; each environment is imported on first use.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl

_ENVIRONMENTS = [
    ("dataset", "environment:DatasetEnvironment", "Tasks from a hub data set or a local file, by a field mapping."),
    ("multiple-choice", "ready:MultipleChoice", "Lettered options in shuffled order, from a hub data set or a file."),
    ("gsm8k", "ready:Gsm8k", "GSM8K: grade-school word problems with a number as answer."),
    ("math500", "ready:Math500", "MATH-500: competition problems with LaTeX answers."),
    ("aime", "ready:Aime", "AIME 2024: thirty problems with an integer as answer."),
]


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """All environments of this plugin, by name."""
    for name, target, summary in _ENVIRONMENTS:
        yield ComponentSpec("environment", name, f"atropos_datasets.{target}", summary)


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Whether the optional packages are there."""
    for package, extra in (("datasets", "hub"), ("pyarrow", "parquet")):
        if importlib.util.find_spec(package) is None:
            yield (f"atropos-datasets[{extra}]", "info", f"not installed: pip install 'atropos-datasets[{extra}]'")
        else:
            yield (f"atropos-datasets[{extra}]", "ok", f"{package} is installed")
