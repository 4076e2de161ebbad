"""The tables on the page about verdicts are those that the benchmark prints now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "benchmarks" / "answers_agreement.py"
PAGE = ROOT / "docs" / "explanation" / "answer-verdicts.md"


@pytest.mark.slow
def test_tables_are_up_to_date() -> None:
    pytest.importorskip("math_verify")
    cases = ROOT.parent / "shared" / "cases" / "answers.jsonl"
    if not cases.is_file():
        pytest.skip("../shared is not beside the repository")
    page = PAGE.read_text(encoding="utf-8")
    if f"of {len(cases.read_text(encoding='utf-8').splitlines())} cases." not in page:
        pytest.skip("the page was written for a case table of another length")
    done = subprocess.run([sys.executable, SCRIPT, "--no-timing"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Our verdict is the expected one in")
    assert done.stdout.strip() in page, f"run {SCRIPT.name} --write"
