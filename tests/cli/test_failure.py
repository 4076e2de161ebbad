"""From exceptions to exit codes and two lines on stderr."""

from __future__ import annotations

import errno

import pytest
from pydantic import BaseModel, Field

from atropos_cli.cli.failure import report
from atropos_cli.console.session import Session
from atropos_cli.errors import (
    AtroposError,
    BackendError,
    ConfigError,
    DataError,
    LaunchError,
    PluginError,
    RunFailed,
    TrainerError,
    UsageError,
)


class Model(BaseModel):
    count: int = Field(ge=1)
    name: str = "x"


def validation_error() -> Exception:
    try:
        Model.model_validate({"count": 0, "name": 5})
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunFailed("x"), 1),
        (UsageError("x"), 2),
        (ConfigError("x"), 3),
        (PluginError("x"), 4),
        (BackendError("x"), 5),
        (DataError("x"), 6),
        (LaunchError("x"), 7),
        (TrainerError("x"), 8),
        (AtroposError("x"), 1),
        (OSError(errno.ENOSPC, "No space left on device", "out"), 6),
        (PermissionError(errno.EACCES, "Permission denied", "out"), 6),
        (OSError("no number"), 70),
        (ValueError("x"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(type(error)) as raised:
        raise error
    assert report(raised.value, Session()) == code
    seen = capfd.readouterr()
    assert seen.out == ""
    assert ("Traceback" in seen.err) == (code == 70)
    assert seen.err.startswith("interrupted" if code == 130 else "error: ")


def test_two_lines_and_the_traceback_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    error = ConfigError("workers is 'x'", hint="edit atropos.toml")
    report(error, Session())
    assert capfd.readouterr().err == "error: workers is 'x'\nhint: edit atropos.toml\n"
    report(error, Session(["--debug"]))
    assert "ConfigError: workers is 'x'" in capfd.readouterr().err


def test_a_models_errors_are_lines_of_key_expected_and_got(capfd: pytest.CaptureFixture[str]) -> None:
    assert report(validation_error(), Session()) == 3
    assert capfd.readouterr().err.splitlines() == [
        "error: Model is not valid",
        "  count: expected at least 1, got 0",
        "  name: expected text, got 5",
    ]


def test_a_full_disk_names_the_file(capfd: pytest.CaptureFixture[str]) -> None:
    report(OSError(errno.ENOSPC, "No space left on device", "out/groups.jsonl"), Session())
    assert capfd.readouterr().err == "error: out/groups.jsonl: No space left on device\n"


def test_switches_are_found_wherever_they_stand_but_not_behind_two_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Session(["gen", "x", "--debug"]).debug
    assert not Session(["gen", "--", "--debug"]).debug
    assert Session(["--strict-plugins", "gen"]).strict
    monkeypatch.setenv("ATROPOS_DEBUG", "0")
    assert not Session([]).debug
    monkeypatch.setenv("ATROPOS_DEBUG", "on")
    assert Session([]).debug
