"""Finding components by name, and the errors that say what to do instead."""

from __future__ import annotations

import logging

import pytest

from atropos_cli.errors import ComponentClash, ComponentNotFound, ExitCode, PluginError
from atropos_cli.plugins.discovery import load_registry
from atropos_cli.plugins.registry import Registration, Registry
from atropos_cli.plugins.spec import ComponentSpec


def writers(*names: str, dist: str = "p1") -> list[Registration]:
    return [Registration(ComponentSpec("writer", name, "m:a"), dist, "1.0", dist) for name in names]


def hint(caught: pytest.ExceptionInfo[PluginError]) -> str:
    return caught.value.hint or ""


def test_registrations_are_sorted_by_name_then_distribution():
    registry = Registry([*writers("b", "a", dist="p2"), *writers("b", dist="p1")])
    assert [item.qualified for item in registry.registrations("writer")] == ["p2/a", "p1/b", "p2/b"]
    assert registry.registrations("trainer") == []


@pytest.mark.parametrize("name", ["w", "my-dist/w", "my-dist:w", "My_Dist/w", "my.dist:w"])
def test_all_spellings_of_a_name(name):
    registry = Registry(writers("w", dist="my-dist"))
    assert registry.find("writer", name).qualified == "my-dist/w"


def test_a_clash_names_both_distributions_and_the_full_names_that_work(site):
    """Field case H04."""
    site.install("good")
    site.install("clash")
    registry = load_registry()
    with pytest.raises(ComponentClash) as caught:
        registry.find("environment", "letters")
    assert caught.value.exit_code == ExitCode.PLUGIN
    assert "atropos-fixture-clash 1.0 and atropos-fixture-good 1.0" in caught.value.message
    assert hint(caught) == "use atropos-fixture-clash/letters or atropos-fixture-good/letters"
    for dist, name in (("clash", "OtherLetters"), ("good", "Letters")):
        for separator in "/:":
            found = registry.find("environment", f"atropos-fixture-{dist}{separator}letters")
            assert found.load().__name__ == name


def test_a_plan_finds_the_component_of_its_distribution():
    registry = Registry([*writers("w", dist="p1"), *writers("w", dist="p2")])
    assert registry.find("writer", "w", dist="p2").qualified == "p2/w"
    assert registry.find("writer", "p1/w", dist="p2").qualified == "p1/w"
    with pytest.raises(ComponentNotFound) as caught:
        registry.find("writer", "w", dist="p3")
    assert caught.value.message == "there is no writer 'p3/w'"


def test_close_matches_are_suggested():
    registry = Registry(writers("jsonl", "parquet"))
    with pytest.raises(ComponentNotFound) as caught:
        registry.find("writer", "JSONl2")
    assert hint(caught) == "did you mean jsonl?"
    with pytest.raises(ComponentNotFound) as caught:
        registry.find("writer", "p1/parket")
    assert hint(caught) == "did you mean p1/parquet?"
    with pytest.raises(ComponentNotFound) as caught:
        registry.find("writer", "p2:parquet")
    assert hint(caught) == "did you mean p1/parquet?"


def test_without_a_close_match_everything_of_the_kind_is_listed():
    registry = Registry(writers(*(f"writer{number:02}" for number in range(15))))
    with pytest.raises(ComponentNotFound) as caught:
        registry.find("writer", "zzz")
    assert caught.value.message == "there is no writer 'zzz'"
    assert "writer00, writer01" in hint(caught)
    assert "and 3 more" in hint(caught)
    with pytest.raises(ComponentNotFound) as caught:
        registry.find("trainer", "zzz")
    assert hint(caught) == "no trainer is installed"


def test_a_name_of_another_kind_is_recognised():
    with pytest.raises(ComponentNotFound) as caught:
        Registry(writers("jsonl")).find("reward", "jsonl")
    assert "'jsonl' is a writer" in hint(caught)


def test_a_broken_plugin_is_mentioned_for_a_missing_name(site):
    site.install("broken")
    with pytest.raises(ComponentNotFound) as caught:
        load_registry().find("environment", "broken-maze")
    assert "plugin 'broken' (atropos-fixture-broken) is broken" in hint(caught)
    assert "no_such_lib" in hint(caught)


@pytest.mark.parametrize("name", ["", "/", ":", "a/", "/a", "a/b/c", "\n", "a" * 1000, "p1/", "\udcff"])
def test_odd_names_are_not_found(name):
    with pytest.raises(ComponentNotFound):
        Registry(writers("a")).find("writer", name)


def test_a_backend_is_found_by_the_model_it_serves():
    def backend(name: str, dist: str, *aliases: str) -> Registration:
        return Registration(ComponentSpec("backend", name, "m:a", aliases=aliases), dist, "1", dist)

    registry = Registry([backend("local", "p1", "SmolLM2", "tiny"), backend("other", "p2", "tiny")])
    found = registry.backend_for_model("smollm2")
    assert found is not None
    assert found.name == "local"
    assert registry.backend_for_model("gpt") is None
    with pytest.raises(ComponentClash) as caught:
        registry.backend_for_model("tiny")
    assert hint(caught) == "use p1/local or p2/other"


LAUNCHER = """
from atropos_cli.sdk.launchers import Launcher, LauncherCapabilities

class X(Launcher):
    name = "x"
    capabilities = {}
    render = submit = status = logs = cancel = lambda self, *given, **more: None
"""


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("environment", "X = 3", ["found int 3", "subclass of Environment"]),
        ("environment", "from atropos_cli.sdk import Environment as X", ["found class Environment"]),
        (
            "environment",
            "from atropos_cli.sdk import Environment\nclass X(Environment):\n    name = 'x'",
            ["does not define tasks()"],
        ),
        (
            "environment",
            "from atropos_cli.sdk import Environment\nclass X(Environment):\n    def tasks(self, split): return []",
            ["class X has no name", "name = 'thing'"],
        ),
        (
            "environment",
            (
                "from atropos_cli.sdk import Environment\nclass E(Environment):\n    name = 'x'\n"
                "    def tasks(self, split): return []\nX = E(None)"
            ),
            ["found E", "name the class"],
        ),
        ("reward", "def X(task, rollout): return 1.0", ["found function X", "@reward"]),
        ("backend", "class X: pass", ["found class X", "subclass of InferenceBackend"]),
        ("trainer", "import os\nX = os", ["found module os", "subclass of Trainer"]),
        ("launcher", "X = None", ["subclass of Launcher"]),
        ("launcher", LAUNCHER.format("True"), ["are not LauncherCapabilities: found bool True"]),
        (
            "launcher",
            LAUNCHER.format("LauncherCapabilities(submit=False)"),
            ["neither submit jobs nor run shards"],
        ),
        ("writer", "X = None", ["subclass of Writer"]),
    ],
)
def test_what_is_loaded_must_be_of_the_kind(site, kind, source, words):
    (site.folder / "wrong_kind.py").write_text(source)
    registration = Registration(ComponentSpec(kind, "thing", "wrong_kind:X"), "some-dist", "2.0", "e")
    with pytest.raises(PluginError) as caught:
        registration.load()
    assert "some-dist 2.0" in caught.value.message
    for word in words:
        assert word in f"{caught.value.message} {hint(caught)}"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (ComponentSpec("writer", "w", "needs_lib:W", extra="zst"), ["no_such_lib", "pip install 'some-dist[zst]'"]),
        (ComponentSpec("writer", "w", "needs_lib:W", requires=("a>=1", "b")), ["pip install a>=1 b"]),
        (ComponentSpec("writer", "w", "needs_lib:W"), ["pip install no_such_lib"]),
        (ComponentSpec("writer", "w", "gone_pkg.mod:W"), ["gone_pkg", "pip install --force-reinstall some-dist"]),
        (ComponentSpec("writer", "w", "exits:W"), ["SystemExit: 4"]),
        (ComponentSpec("writer", "w", "has_names:Writter"), ["has no 'Writter'", "it has 'WriterA'"]),
        (ComponentSpec("writer", "w", "has_names"), ["module:attr"]),
    ],
)
def test_a_target_that_cannot_be_imported_says_what_to_install(site, spec, words):
    (site.folder / "needs_lib.py").write_text("import no_such_lib.sub")
    (site.folder / "exits.py").write_text("raise SystemExit(4)")
    (site.folder / "has_names.py").write_text("WriterA = 1")
    with pytest.raises(PluginError) as caught:
        Registration(spec, "some-dist", "2.0", "e").load()
    for word in words:
        assert word in f"{caught.value.message} {hint(caught)}"


def test_a_nested_attribute_can_be_a_target(site):
    (site.folder / "nested.py").write_text(
        "from atropos_cli.sdk import *\nclass Box:\n    @reward\n    def inner(task, rollout): return 1.0\n"
    )
    registration = Registration(ComponentSpec("reward", "inner", "nested:Box.inner"), "d", "1", "e")
    assert registration.load().name == "inner"


def test_a_template_is_an_existing_folder(tmp_path):
    good = Registration(ComponentSpec("template", "t", str(tmp_path)), "d", "1", "e")
    assert good.load() == tmp_path
    with pytest.raises(PluginError, match="there is no folder"):
        Registration(ComponentSpec("template", "t", tmp_path / "no"), "d", "1", "e").load()


def test_observers_are_called_with_what_they_ask_for(site):
    site.install("good")
    registry = load_registry()
    assert registry.call_observers("atropos_run_started", plan="P", folder=None) == ()
    import good_plugin

    assert good_plugin.seen == ["started P"]


def test_an_observer_that_fails_is_reported_once_and_others_are_called(site, caplog):
    site.plugin("faulty", "@hookimpl\ndef atropos_group_scored(plan, group): raise OSError(f'disk {group}')")
    site.plugin("quits", "@hookimpl\ndef atropos_group_scored(group): raise SystemExit(1)")
    site.plugin("later", "calls = []\n@hookimpl\ndef atropos_group_scored(group): calls.append(group)")
    registry = load_registry()
    with caplog.at_level(logging.WARNING, logger="atropos.plugins"):
        first = registry.call_observers("atropos_group_scored", plan="P", group=1)
        assert registry.call_observers("atropos_group_scored", plan="P", group=2) == ()
    assert [(failure.dist, failure.stage, failure.error) for failure in first] == [
        ("faulty", "hook", "OSError: disk 1"),
        ("quits", "hook", "SystemExit: 1"),
    ]
    assert len(caplog.records) == 2
    import later_module

    assert later_module.calls == [1, 2]
    assert set(first) <= set(registry.failures)


def test_only_observers_can_be_called(site):
    with pytest.raises(ValueError, match="not an observer"):
        load_registry().call_observers("atropos_register_writers")


def test_doctor_collects_checks_and_survives_bad_ones(site):
    site.install("good")
    site.plugin("sick", "@hookimpl\ndef atropos_doctor(): raise OSError('no disk')")
    site.plugin("vague", "@hookimpl\ndef atropos_doctor():\n    yield ('a', 'ok', 1)\n    yield ('b', 'fine', '')")
    site.plugin("short", "@hookimpl\ndef atropos_doctor(): return [('a', 'ok')]")
    checks = {(check.plugin, check.name): (check.status, check.detail) for check in load_registry().doctor()}
    assert checks["good", "alphabet"] == ("ok", "26 letters")
    assert checks["sick", "atropos_doctor"] == ("fail", "OSError: no disk")
    assert checks["vague", "a"] == ("ok", "1")
    assert checks["vague", "atropos_doctor"][0] == "fail"
    assert "'fine'" in checks["vague", "atropos_doctor"][1]
    assert checks["short", "atropos_doctor"][0] == "fail"
