"""Extra commands of plugins."""

from __future__ import annotations

import sys

import pytest

from atropos_cli.errors import ComponentClash, ComponentNotFound, PluginError
from atropos_cli.plugins.discovery import command_clashes, command_entry_points, load_command


def test_a_command_is_found_without_importing_and_loads(site, capsys):
    site.install("good")
    dist, point = command_entry_points()["good-hello"]
    assert (dist, point.value) == ("atropos-fixture-good", "good_plugin.command:hello")
    assert "good_plugin" not in sys.modules
    load_command("good-hello")()
    assert capsys.readouterr().out == "hello world\n"


def test_two_commands_of_one_name_have_only_full_names(site):
    """Field case H04, for commands."""
    site.install("good")
    site.install("clash")
    full_names = ("atropos-fixture-clash/good-hello", "atropos-fixture-good/good-hello")
    found = command_entry_points()
    assert "good-hello" not in found
    assert set(full_names) <= set(found)
    assert command_clashes() == {"good-hello": full_names}
    with pytest.raises(ComponentClash) as caught:
        load_command("good-hello")
    assert caught.value.hint == "use " + " or ".join(full_names)
    assert load_command(full_names[0]).__module__ == "clash_plugin.command"


def test_disabled_distributions_have_no_commands(site):
    site.install("good")
    assert "good-hello" not in command_entry_points({"ATROPOS_DISABLE_PLUGINS": "atropos-fixture-good"})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gone_pkg:run", ["gone_pkg", "pip install --upgrade some-dist"]),
        ("command_exits:run", ["SystemExit: 3"]),
        ("command_number:run", ["neither a typer.Typer nor a function", "int 5"]),
        ("command_number:walk", ["AttributeError"]),
    ],
)
def test_a_command_that_cannot_be_loaded_names_its_distribution(site, value, words):
    (site.folder / "command_exits.py").write_text("raise SystemExit(3)")
    (site.folder / "command_number.py").write_text("run = 5")
    site.record("some-dist", {"atropos.commands": {"run-it": value}})
    assert "run-it" in command_entry_points()
    with pytest.raises(PluginError) as caught:
        load_command("run-it")
    for word in ["'run-it' of some-dist", *words]:
        assert word in f"{caught.value.message} {caught.value.hint}"


def test_an_unknown_command_is_not_found():
    with pytest.raises(ComponentNotFound):
        load_command("no-such-command")
