"""What a run remembers of the groups that a trajectory server has acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from atropos_cli.domain.delivery import Delivery
from atropos_cli.errors import DataError
from atropos_cli.rollout.delivery import JOURNAL, Journal


def test_a_journal_is_continued(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("a-0", "received")
    journal.close()
    again = Journal(tmp_path)
    assert (again.key, again.done) == (journal.key, {"a-0"})
    again.close()


def test_a_torn_line_counts_as_not_sent(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add("a-0", "received")
    journal.close()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"group": "a-1", "ans')
    again = Journal(tmp_path)
    again.add("a-2", "received")
    again.close()
    assert Journal(tmp_path).done == {"a-0", "a-2"}


def test_a_torn_first_line_is_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b'{"key": "1')
    assert Journal(tmp_path).done == set()
    assert len(Journal(tmp_path).key) == 16


def test_a_damaged_journal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"key": "1"}\nnonsense\n')
    with pytest.raises(DataError, match=r"delivered\.jsonl is damaged"):
        Journal(tmp_path)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://user:secret@host:8000"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ValidationError):
        Delivery(to=url)


def test_a_slash_at_the_end_of_a_url_means_nothing() -> None:
    assert Delivery(to="http://host:8000/").to == "http://host:8000"
