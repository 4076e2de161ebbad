"""Reading TOML and YAML: lines, number and boolean rules, and every way a file can be broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atropos_cli.config.files import ConfigFile, read_config
from atropos_cli.errors import ConfigError


def read(name: str, text: str | bytes, *, explicit: bool = True) -> ConfigFile:
    path = Path(name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path, explicit=explicit)


def message(name: str, text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read(name, text)
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("-.inf", float("-inf")),
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("[1, no, 1e-6]", [1, "no", 1e-6]),
    ],
)
def test_yaml_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    found = read("a.yaml", f"x: {text}\n").tree["x"]
    assert found == value
    assert type(found) is type(value)


def test_yaml_keys_have_lines_and_stay_text() -> None:
    file = read("a.yaml", "a: 1\nb:\n  c: 2\n  d: {e: 3}\n5: x\nno: y\n")
    assert file.tree == {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "5": "x", "no": "y"}
    assert [file.line(key) for key in (("a",), ("b", "c"), ("b", "d", "e"), ("5",), ("no",))] == [1, 3, 4, 5, 6]
    assert file.line(("b", "missing")) == 2


def test_yaml_merge_keys_work_and_may_be_overridden() -> None:
    tree = read("a.yaml", "base: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}\nd:\n  <<: *b\n").tree
    assert tree["c"] == {"x": 1, "y": 3}
    assert tree["d"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr: 1\nlr: 2\n", ["a.yaml:2", "'lr' was already given in line 1", "column 1"]),
        ("a: {b: 1, b: 2}\n", ["a.yaml:1", "'b' was already given"]),
        ("list: [1,2\n", ["a.yaml:2", "line 2, column 1", "that begins in line 1"]),
        ("a:\n\tb: 1\n", ["a.yaml:2", "column 1"]),
        ("- 1\n", ["expected keys and values, got list"]),
        ("? [a]\n: 1\n", ["a key must be plain text"]),
        ("a: !!python/object/apply:os.system [x]\n", ["a.yaml:1", "could not determine a constructor"]),
        ("a: &x\n  b: *x\n", ["nested too deeply"]),
        ("a: 1\n---\nb: 2\n", ["expected a single document"]),
        ("a: !!int x\n", ["'x' is not an integer"]),
        ("", ["empty"]),
        ("# nothing\n", ["empty"]),
    ],
)
def test_yaml_that_is_refused(text: str, expected: list[str]) -> None:
    found = message("a.yaml", text)
    for part in expected:
        assert part in found


def test_yaml_that_expands_without_end_is_refused() -> None:
    lines = ["a: &a [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"{b}: &{b} [{','.join(['*' + a] * 10)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)]
    assert "too many values" in message("bomb.yaml", "\n".join(lines))


def test_toml_lines() -> None:
    text = (
        'model = "a" # [c]\nstop = [\n  "]", # ]\n  \'x\',\n]\n\n[sampling]\ntop_p = 0.9\n'
        'text = """\n[no]\nk = 1\n"""\nlast=2\n[env."sub.x"]\na.b = { c = 1, d = [2,\n3]}\nz = 1\n'
    )
    file = read("a.toml", text)
    assert file.tree["env"]["sub.x"] == {"a": {"b": {"c": 1, "d": [2, 3]}}, "z": 1}
    lines = {
        ("model",): 1,
        ("stop",): 2,
        ("sampling", "top_p"): 8,
        ("sampling", "last"): 13,
        ("env", "sub.x", "a", "b"): 15,
        ("env", "sub.x", "a", "b", "c"): 15,
        ("env", "sub.x", "z"): 17,
    }
    assert {key: file.line(key) for key in lines} == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x = 1\nx = 2\n", ["a.toml:2", "Cannot overwrite a value"]), ("a = \n", ["a.toml:1", "line 1, column 5"])],
)
def test_toml_that_is_refused(text: str, expected: list[str]) -> None:
    found = message("a.toml", text)
    for part in expected:
        assert part in found


def test_other_unreadable_files() -> None:
    assert "a.yaml:2: not UTF-8" in message("a.yaml", b"a: 1\nb: \xff\n")
    assert "suffix '.ini'" in message("a.ini", "a=1")
    assert "too large" in message("a.toml", "# " + "x" * (1 << 20))
    with pytest.raises(ConfigError, match=r"there is no configuration file no.toml"):
        read_config(Path("no.toml"))
    Path("folder.toml").mkdir()
    with pytest.raises(ConfigError, match=r"cannot read the configuration file folder.toml"):
        read_config(Path("folder.toml"))


def test_a_byte_order_mark_and_an_implicit_empty_file_are_fine() -> None:
    assert read("a.toml", b"\xef\xbb\xbfx = 1\n").tree == {"x": 1}
    assert read("b.toml", "# only a comment\n", explicit=False).tree == {}
