"""Loading plugins: what works, what is broken, and that neither stops the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from atropos_cli.errors import ComponentNotFound, PluginError
from atropos_cli.plugins.discovery import get_registry, load_registry, reset_registry
from atropos_cli.plugins.registry import PluginFailure, PluginInfo, Registry


def of(registry: Registry, dist: str) -> list[PluginFailure]:
    return [failure for failure in registry.failures if failure.dist == dist]


def info(registry: Registry, dist: str) -> PluginInfo:
    (found,) = [plugin for plugin in registry.plugins if plugin.dist == dist]
    return found


def test_a_good_plugin_is_listed_and_its_components_load(site):
    site.install("good")
    registry = load_registry()
    letters = registry.find("environment", "letters")
    assert (letters.dist, letters.version, letters.entry_point) == ("atropos-fixture-good", "1.0", "good")
    assert letters.qualified == "atropos-fixture-good/letters"
    assert letters.summary == "Count letters in a word."
    assert letters.load().name == "letters"
    plugin = info(registry, "atropos-fixture-good")
    assert plugin.components == 2
    assert plugin.module == "good_plugin"
    assert plugin.failure is None
    assert "atropos_run_started" in plugin.hooks
    assert of(registry, "atropos-fixture-good") == []


def test_built_in_components_come_first_and_are_complete():
    registry = load_registry(disabled={"all"})
    assert registry.plugins[0].entry_point == "builtin"
    assert registry.plugins[0].failure is None
    assert {item.name for item in registry.registrations("backend")} == {"openai", "scripted"}
    assert {item.name for item in registry.registrations("writer")} == {"jsonl", "jsonl.zst", "stdout"}
    assert not registry.registrations("template")
    templates = load_registry().registrations("template")
    assert {"environment", "reward"} <= {item.name for item in templates if item.dist == "atropos-authoring"}
    assert [item.name for item in registry.registrations("reward")] == [
        "contains_answer",
        "exact_match",
        "length",
        "numeric_match",
    ]


def test_summaries_of_built_in_rewards_are_those_of_the_functions():
    built_in = load_registry(disabled={"all"}).registrations("reward")
    assert len(built_in) > 2
    for item in built_in:
        assert item.load().summary == item.summary


def test_a_plugin_that_raises_at_import_stops_nobody(site):
    """Field case H01."""
    site.install("broken")
    site.install("good")
    registry = load_registry()
    (failure,) = of(registry, "atropos-fixture-broken")
    assert failure.stage == "import"
    assert failure.error == "ModuleNotFoundError: No module named 'no_such_lib'"
    assert "broken_plugin/__init__.py" in failure.traceback
    assert "pip install no_such_lib" in (failure.hint or "")
    assert "ATROPOS_DISABLE_PLUGINS=broken" in (failure.hint or "")
    assert failure.message == (
        "plugin 'broken' (atropos-fixture-broken 1.0) failed at import: "
        "ModuleNotFoundError: No module named 'no_such_lib'"
    )
    assert info(registry, "atropos-fixture-broken").failure == failure
    assert registry.find("environment", "letters").load().name == "letters"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; 1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("import pytest; pytest.skip('no', allow_module_level=True)", "Skipped: no"),
        ("class E(Exception):\n    def __str__(self): return 1/0\nraise E", "E"),
        ("raise BaseException('rude')", "BaseException: rude"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_whatever_an_import_raises_is_data(site, source, error):
    site.plugin("rude", source)
    (failure,) = of(load_registry(), "rude")
    assert failure.stage == "import"
    assert failure.error.startswith(error)


def test_a_ghost_names_entry_point_distribution_place_and_remedy(site):
    """Field case H03: the record is there, the package is not."""
    record = site.install("ghost")
    site.install("good")
    registry = load_registry()
    (failure,) = of(registry, "atropos-fixture-ghost")
    assert failure.entry_point == "ghost"
    assert failure.stage == "import"
    assert "ghost_pkg" in failure.error
    assert str(record) in (failure.hint or "")
    assert "pip uninstall atropos-fixture-ghost" in (failure.hint or "")
    assert registry.find("environment", "letters")


def test_a_missing_submodule_of_ones_own_is_a_ghost_too_but_a_missing_library_is_not(site):
    site.plugin("partial", "")
    site.record("other", {"atropos": {"other": "partial_module.gone"}})
    site.plugin("needy", "import partial_module_lib.sub")
    registry = load_registry()
    assert "pip uninstall other" in (of(registry, "other")[0].hint or "")
    assert (of(registry, "needy")[0].hint or "").startswith("pip install partial_module_lib,")


def test_a_misspelt_hook_is_reported_and_the_right_one_works(site):
    site.install("misspelt")
    registry = load_registry()
    (failure,) = of(registry, "atropos-fixture-misspelt")
    assert failure.stage == "hook"
    assert "atropos_register_enviroments" in failure.error
    assert failure.hint == "did you mean atropos_register_environments?"
    assert registry.find("reward", "politeness").load().name == "politeness"
    assert info(registry, "atropos-fixture-misspelt").hooks == ("atropos_register_rewards",)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def atropos_register_rewards(): return []", ["not marked", "@hookimpl"]),
        ("@hookimpl\ndef atropos_group_scored(plan, grp): pass", ["'grp'", "plan, group"]),
        ("@hookimpl\ndef atropos_register_rewards(config): return []", ["'config'", "no arguments"]),
        ("@hookimpl\nasync def atropos_run_started(plan): pass", ["async", "plain function"]),
        ("@hookimpl(wrapper=True)\ndef atropos_register_rewards(): return (yield)", ["wrapper"]),
        ("x = 1", ["no hooks"]),
    ],
)
def test_what_is_wrong_with_a_hook_is_said(site, source, words):
    site.plugin("wrong", source)
    (failure,) = of(load_registry(), "wrong")
    assert failure.stage == "hook"
    for word in words:
        assert word in f"{failure.error} {failure.hint}"


def test_a_wrong_hook_leaves_the_right_ones_of_its_plugin(site):
    site.plugin(
        "mixed",
        "@hookimpl\ndef atropos_group_scored(plan, grp): pass\n"
        "@hookimpl\ndef atropos_register_writers(): return ComponentSpec('writer', 'mine', 'mixed_writer:W')\n",
    )
    registry = load_registry()
    assert len(of(registry, "mixed")) == 1
    assert registry.find("writer", "mine").dist == "mixed"


def test_an_entry_point_that_names_the_component_itself_is_explained(site):
    module = site.plugin("direct", "class E(Environment):\n    name = 'e'\n    def tasks(self, split): return []\n")
    site.record("pointed", {"atropos": {"pointed": f"{module}:E"}})
    (failure,) = of(load_registry(), "pointed")
    assert "class E" in failure.error
    assert "module" in (failure.hint or "")


HOOK = "@hookimpl\ndef atropos_register_rewards():\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    return 'exact'", ["got str 'exact'"]),
        ("    return [3]", ["got int 3"]),
        ("    return {'a': 1}", ["got dict {'a': 1}"]),
        ("    return 7", ["got int 7"]),
        ("    def f(task, rollout): return 1.0\n    return [f]", ["got function f"]),
        ("    return Environment", ["got class Environment"]),
        ("    return ComponentSpec('writer', 'w', 'm:a')", ["writer 'w'", "hook for rewards"]),
        ("    return ComponentSpec('reward', 'a/b', 'm:a')", ["'a/b'", "not allowed"]),
        ("    return ComponentSpec('reward', 'r', 'no target')", ["'no target'", "module:attr"]),
        ("    raise RuntimeError('no')", ["RuntimeError: no"]),
        ("    raise SystemExit('bye')", ["SystemExit: bye"]),
        ("    raise PluginError('mine')", ["PluginError: mine"]),
    ],
)
def test_what_a_registration_hook_must_not_return(site, body, words):
    site.plugin("odd", HOOK + body)
    (failure,) = of(load_registry(), "odd")
    assert failure.stage == "register"
    assert failure.hook == "atropos_register_rewards"
    for word in words:
        assert word in failure.error
    assert "atropos_register_rewards" in failure.message


def test_what_a_hook_may_return(site):
    site.plugin(
        "forms",
        "@reward\ndef one(task, rollout): return 1.0\n@reward\ndef two(task, rollout): return 2.0\n"
        "class E(Environment):\n    '''Says little.\n\n    More.'''\n    name = 'little'\n"
        "    def tasks(self, split): return []\n"
        "@hookimpl\ndef atropos_register_rewards():\n    yield one\n    yield ComponentSpec('reward', 'deux', two)\n"
        "@hookimpl\ndef atropos_register_environments(): return E\n"
        "@hookimpl\ndef atropos_register_trainers(): return None\n",
    )
    registry = load_registry()
    assert of(registry, "forms") == []
    assert registry.find("reward", "one").load().name == "one"
    assert registry.find("reward", "deux").load().name == "two"
    assert registry.find("environment", "little").summary == "Says little."
    assert info(registry, "forms").components == 3


def test_items_before_a_failure_and_beside_a_bad_item_stay(site):
    site.plugin(
        "half",
        "@hookimpl\ndef atropos_register_writers():\n"
        "    yield ComponentSpec('writer', 'first', 'half_writers:A')\n    yield 5\n"
        "    yield ComponentSpec('writer', 'second', 'half_writers:B')\n    raise ValueError('late')\n",
    )
    registry = load_registry()
    assert [failure.error for failure in of(registry, "half")] == [
        "TypeError: expected a ComponentSpec or a subclass of Writer, got int 5",
        "ValueError: late",
    ]
    assert registry.find("writer", "first")
    assert registry.find("writer", "second")


def test_one_distribution_cannot_register_a_name_twice(site):
    site.plugin(
        "twice",
        "@hookimpl\ndef atropos_register_writers():\n"
        "    yield ComponentSpec('writer', 'w', 'twice_a:A')\n    yield ComponentSpec('writer', 'w', 'twice_b:B')\n",
    )
    registry = load_registry()
    assert "twice" in of(registry, "twice")[0].error
    assert registry.find("writer", "w").spec.target == "twice_a:A"


def test_what_plugins_print_does_not_reach_stdout(site, capsys):
    site.plugin("chatty", "print('hello')\n@hookimpl\ndef atropos_register_writers():\n    print('hooked')\n")
    site.plugin("watcher", "print('hello')\n@hookimpl\ndef atropos_run_started(): print('hooked')\n")
    registry = load_registry()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")  # nothing is imported here to learn names
    registry.call_observers("atropos_run_started", plan="P", folder=None)
    captured = capsys.readouterr()
    assert (captured.out, captured.err.split()) == ("", ["hello", "hooked"])


def test_strict_raises_the_first_failure(site):
    site.install("broken")
    site.install("misspelt")
    with pytest.raises(PluginError, match=r"atropos-fixture-broken 1\.0.*no_such_lib"):
        load_registry(strict=True)


def test_disabled_plugins_are_listed_but_not_imported(site):
    site.install("broken")
    site.install("good")
    for name in ("good, broken", "atropos_fixture.GOOD,atropos-fixture-broken", "all"):
        registry = load_registry(environ={"ATROPOS_DISABLE_PLUGINS": name})
        assert of(registry, "atropos-fixture-broken") == []
        assert info(registry, "atropos-fixture-good").disabled
        assert "good_plugin" not in sys.modules
        with pytest.raises(ComponentNotFound) as caught:
            registry.find("environment", "letters")
        assert "ATROPOS_DISABLE_PLUGINS" in (caught.value.hint or "")
        assert registry.find("reward", "exact_match")


def test_an_empty_list_disables_nothing_whatever_the_variable_says(site, monkeypatch):
    site.install("good")
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "all")
    assert load_registry(disabled=()).find("environment", "letters")


def test_the_order_does_not_depend_on_the_path(site, monkeypatch, tmp_path):
    for name in ("zeta", "alpha", "mid"):
        site.plugin(name, f"@hookimpl\ndef atropos_register_writers(): return ComponentSpec('writer', 'w', 'm:{name}')")
    other = tmp_path / "other"
    site.record("beta", {"atropos": {"beta": "zeta_module"}}, folder=other)
    monkeypatch.syspath_prepend(str(other))
    ours = {"alpha", "beta", "mid", "zeta"}
    assert [plugin.dist for plugin in load_registry().plugins if plugin.dist in ours] == [
        "alpha",
        "beta",
        "mid",
        "zeta",
    ]


def test_a_leftover_record_of_an_older_version_is_not_a_second_plugin(site):
    site.install("good")
    site.record("atropos-fixture-good", {"atropos": {"good": "good_plugin"}}, version="0.9")
    registry = load_registry()
    assert info(registry, "atropos-fixture-good").failure is None
    assert registry.find("environment", "letters")


def test_a_distribution_hides_a_later_one_of_the_same_name(site, tmp_path, monkeypatch):
    site.install("good")
    later = tmp_path / "later"
    site.record("Atropos_Fixture.Good", {"atropos": {"old": "old_pkg"}}, version="0.1", folder=later)
    monkeypatch.setattr(sys, "path", [*sys.path, str(later)])
    registry = load_registry()
    assert [plugin.entry_point for plugin in registry.plugins if "good" in plugin.dist.lower()] == ["good"]


def test_a_damaged_record_is_reported_and_hides_nothing(site):
    site.install("good")
    record = site.record("damaged", {"atropos": {"x": "y"}})
    (record / "entry_points.txt").write_text("[atropos]\nthis is not an entry point\n")
    unrelated = site.record("unrelated", {"console_scripts": {"x": "y:z"}})
    (unrelated / "entry_points.txt").write_bytes(b"\xff\xfe[]]=\x00")
    registry = load_registry()
    (failure,) = of(registry, "damaged")
    assert failure.stage == "import"
    assert str(record) in (failure.hint or "")
    assert of(registry, "unrelated") == []
    assert registry.find("environment", "letters")


def test_a_record_without_metadata_still_names_a_place(site):
    record = site.record("nameless", {"atropos": {"nameless": "gone_pkg"}})
    (record / "METADATA").unlink()
    failures = [failure for failure in load_registry().failures if failure.entry_point == "nameless"]
    assert len(failures) == 1
    assert str(record) in (failures[0].hint or "")


def test_get_registry_is_loaded_once_and_reads_the_variables(site, monkeypatch):
    site.install("broken")
    registry = get_registry()
    assert get_registry() is registry
    with pytest.raises(PluginError, match="no_such_lib"):
        get_registry(strict=True)
    monkeypatch.setenv("ATROPOS_STRICT_PLUGINS", "1")
    with pytest.raises(PluginError, match="no_such_lib"):
        get_registry()
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "broken")
    reset_registry()
    assert of(get_registry(), "atropos-fixture-broken") == []


def _modules_after(code: str, folder: Path) -> set[str]:
    script = (
        f"import sys\nsys.path.insert(0, {str(folder)!r})\n{code}\nimport json\nprint(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_discovery_itself_imports_nothing_large(site):
    loaded = _modules_after("import atropos_cli.plugins.discovery", site.folder)
    assert not loaded & {"pydantic", "httpx", "rich", "typer", "hashlib"}


def test_extra_commands_are_found_without_pluggy_or_pydantic(site):
    site.install("good")
    loaded = _modules_after(
        "from atropos_cli.plugins.commands import command_entry_points\nassert 'good-hello' in command_entry_points()",
        site.folder,
    )
    assert not loaded & {"pluggy", "pydantic", "httpx", "rich", "good_plugin"}


def test_manifests_do_not_bring_in_what_their_components_need(site):
    """Field case H06."""
    site.install("heavy")
    site.install("good")
    loaded = _modules_after(
        "from atropos_cli.plugins.discovery import load_registry\n"
        "registry = load_registry()\n"
        "names = [item.name for item in registry.registrations('backend')]\n"
        "assert 'heavy' in names, registry.failures\n"
        "assert registry.backend_for_model('Heavy-Model').qualified == 'atropos-fixture-heavy/heavy'",
        site.folder,
    )
    assert not loaded & {"torch", "transformers", "datasets", "wandb", "vllm", "numpy", "httpx", "aiohttp"}
    assert not loaded & {"heavy_plugin", "heavy_plugin.backend", "good_plugin", "good_plugin.letters"}
