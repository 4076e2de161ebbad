"""The table of variables for sbatch says what the code does with each."""

from __future__ import annotations

import re
from pathlib import Path

from atropos_slurm.site import LEFT_OUT, REACH, USED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sbatch-pitfalls.md"


def test_the_table_names_every_variable() -> None:
    rows = dict(re.findall(r"^\| `(S(?:BATCH|LURM)_\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    assert {name for name in rows if rows[name].startswith("as it is")} == REACH - {"SLURM_TIME_FORMAT"}
    used = {name: text.partition("`, ")[0].removeprefix("`--") for name, text in rows.items() if text.startswith("`--")}
    assert used == USED
    left = {name: text.removeprefix("not used: ") for name, text in rows.items() if text.startswith("not used: ")}
    assert left == LEFT_OUT
