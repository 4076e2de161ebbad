"""Rules that keep the sources readable, honest and free of this or that machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [ROOT / "atropos_cli", *sorted(ROOT.glob("plugins/*/src/*"))]
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 400, 60, 6

# written in two parts, so that this file does not hold what it looks for
HOSTS = ("py" + "pi.org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "deb.debian" + ".org")
PLACES = ("/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/w/", "/home/" + "user")
SECRETS = re.compile(r"\b(?:sk-[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|ghp_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})\b")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|raise NotImplemented" + "Error")


def tracked() -> list[Path]:
    """The files of the repository; all files when this is no checkout."""
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 50
    assert {package.name for package in PACKAGES} >= {"atropos_cli", "atropos_textworld", "atropos_local"}


def test_no_long_files() -> None:
    long = {str(path.relative_to(ROOT)): lines for path in MODULES if (lines := _lines(path)) > LONGEST_FILE}
    assert not long


def is_command(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Command functions are exempt from the caps: their parameters are a command's options."""
    in_commands = "commands" in path.parts or path.stem == "command"
    return in_commands and (len(parameters(node)) > MOST_PARAMETERS or "ctx" in parameters(node))


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]


def test_no_long_functions() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, node in functions()
        if (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION and not is_command(path, node)
    ]
    assert not long


def test_no_function_with_many_parameters() -> None:
    many = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, node in functions()
        if len(parameters(node)) > MOST_PARAMETERS and not is_command(path, node)
    ]
    assert not many


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if path.stat().st_size and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    assert not silent


def test_nothing_unfinished() -> None:
    code = [(name, text) for name, text in texts() if name.endswith((".py", ".sh", ".md", ".toml", ".j2"))]
    assert not [name for name, text in code if UNFINISHED.search(text)]


def test_nothing_of_one_machine() -> None:
    found = [f"{name}: {word}" for name, text in texts() for word in (*HOSTS, *PLACES) if word in text]
    assert not found


def test_no_secrets() -> None:
    assert not [name for name, text in texts() if SECRETS.search(text)]


def test_no_lock_file_and_no_shared_data() -> None:
    names = {str(path.relative_to(ROOT)) for path in tracked()}
    assert not [name for name in names if name.endswith("uv.lock") or name.startswith("shared/")]
    large = {str(path.relative_to(ROOT)): path.stat().st_size for path in tracked() if path.stat().st_size > 1_000_000}
    assert not large


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pins)


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")
