"""Rows that hold token ids and no messages."""

from __future__ import annotations

from typing import Any

import pytest

from atropos_cli.datasets.convert.sft import SftConverter
from atropos_cli.datasets.convert.spec import SftOptions
from atropos_cli.io.formats import detect
from atropos_cli.io.records import Record

ROW: dict[str, Any] = {
    "tokens": [[1, 2, 3], [1, 2, 4], [1, 2, 4]],
    "masks": [[-100, -100, 3], [-100, -100, 4], [-100, -100, 4]],
    "scores": [1.0, 0.5, 0.25],
    "messages": None,
}


def record() -> Record:
    form = detect(ROW)
    assert form is not None
    return form.read(ROW, "x.jsonl", 1)


def test_they_become_rows_of_tokens_and_equal_ones_are_one_answer() -> None:
    converter = SftConverter(SftOptions(format="tokens", select="top", top=3))
    assert [row["labels"] for row in converter.rows(record())] == [[-100, -100, 3], [-100, -100, 4]]


@pytest.mark.parametrize("options", [SftOptions(format="messages"), SftOptions(format="tokens", retokenize=True)])
def test_other_forms_need_messages(options: SftOptions) -> None:
    converter = SftConverter(options)
    assert converter.rows(record()) == []
    assert converter.report.left_out == {"no_messages": 3}
