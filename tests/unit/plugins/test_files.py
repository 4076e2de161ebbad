"""Components named by file: ./my_env.py:MyEnv."""

from __future__ import annotations

import sys

import pytest

from atropos_cli.errors import ComponentNotFound, PluginError
from atropos_cli.plugins.registry import Registry

ENV = """
from atropos_cli.sdk import *

class MyEnv(Environment):
    name = "mine"
    def tasks(self, split):
        return []

class Sub(MyEnv):
    name = "sub"

@reward
def mine(task, rollout):
    return 1.0
"""


@pytest.fixture
def folder(site, monkeypatch):
    monkeypatch.chdir(site.folder)
    return site.folder


def message(caught: pytest.ExceptionInfo[PluginError]) -> str:
    return f"{caught.value.message} | {caught.value.hint}"


def test_relative_absolute_and_bare_paths_name_the_same_object(folder):
    (folder / "my_env.py").write_text(ENV)
    registry = Registry()
    names = ["./my_env.py:MyEnv", "my_env.py:MyEnv", f"{folder}/my_env.py:MyEnv", "../site-packages/my_env.py:MyEnv"]
    found = [registry.find("environment", name) for name in names]
    assert len({item.load() for item in found}) == 1
    assert len({item.name for item in found}) == 1
    assert registry.find("reward", "my_env.py:mine").load().name == "mine"


def test_the_name_works_from_another_folder_and_the_version_follows_the_content(folder, monkeypatch, tmp_path):
    (folder / "my_env.py").write_text(ENV)
    first = Registry().find("environment", "my_env.py:MyEnv")
    assert (first.dist, first.qualified) == (None, f"{folder}/my_env.py:MyEnv")
    monkeypatch.chdir(tmp_path)
    again = Registry().find("environment", first.name)
    assert again == first
    assert again.load().name == "mine"
    (folder / "my_env.py").write_text(ENV + "# changed\n")
    assert Registry().find("environment", first.name).version != first.version


def test_finding_does_not_import(folder):
    (folder / "loud.py").write_text("raise RuntimeError")
    assert Registry().find("environment", "loud.py:X")


def test_a_file_may_import_its_neighbours_but_the_path_is_restored(folder, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "my_helper_for_tests.py").write_text("NAME = 'helped'")
    (other / "env.py").write_text(ENV + "import my_helper_for_tests\nMyEnv.name = my_helper_for_tests.NAME\n")
    before = list(sys.path)
    assert Registry().find("environment", f"{other}/env.py:MyEnv").load().name == "helped"
    assert sys.path == before


def test_two_files_of_one_name_are_two_modules(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "env.py").write_text(ENV.replace('"mine"', f'"{name}"'))
    registry = Registry()
    assert registry.find("environment", "one/env.py:MyEnv").load().name == "one"
    assert registry.find("environment", "two/env.py:MyEnv").load().name == "two"


def test_classes_of_the_file_can_be_pickled_within_the_process(folder):
    import pickle

    (folder / "my_env.py").write_text(ENV)
    cls = Registry().find("environment", "my_env.py:MyEnv").load()
    assert pickle.loads(pickle.dumps(cls)) is cls


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\ny = undefined\n", ["line 2", "NameError: name 'undefined' is not defined"]),
        ("def f(:\n", ["SyntaxError", "bad.py, line 1"]),
        ("import no_such_lib.sub", ["No module named 'no_such_lib'", "pip install no_such_lib"]),
        ("raise SystemExit(2)", ["SystemExit: 2"]),
        ("\0", ["null bytes"]),
    ],
)
def test_errors_of_the_file_are_shown_as_they_are(folder, source, words):
    (folder / "bad.py").write_text(source)
    registration = Registry().find("environment", "./bad.py:X")
    for _ in range(2):  # a failed import leaves nothing behind
        with pytest.raises(PluginError) as caught:
            registration.load()
        for word in words:
            assert word in message(caught)


def test_a_repaired_file_loads_without_a_new_process(folder):
    (folder / "fix.py").write_text("raise ValueError('not yet')")
    registration = Registry().find("environment", "fix.py:MyEnv")
    with pytest.raises(PluginError):
        registration.load()
    (folder / "fix.py").write_text(ENV)
    assert registration.load().name == "mine"


def test_a_missing_file_class_or_part_is_said(folder):
    (folder / "my_env.py").write_text(ENV)
    registry = Registry()
    for name, words in {
        "./my_evn.py:MyEnv": ["cannot read", "my_evn.py", "did you mean my_env.py?"],
        "./no/such.py:X": ["no/such.py"],
        "./my_env.py": ["does not say which", "./my_env.py:NAME"],
        "./my_env.py:": ["does not say which", "./my_env.py:NAME"],
    }.items():
        with pytest.raises(ComponentNotFound) as caught:
            registry.find("environment", name)
        for word in words:
            assert word in message(caught)
    for attr, word in {"MyEvn": "did you mean my_env.py:MyEnv?", "Zzz": "environments in it: MyEnv, Sub"}.items():
        with pytest.raises(ComponentNotFound) as caught:
            registry.find("environment", f"my_env.py:{attr}").load()
        assert word in message(caught)


def test_an_object_of_another_kind_is_refused(folder):
    (folder / "my_env.py").write_text(ENV)
    with pytest.raises(PluginError) as caught:
        Registry().find("reward", "my_env.py:MyEnv").load()
    assert "found class MyEnv" in message(caught)
    assert f"{folder}/my_env.py" in message(caught)


def test_a_folder_is_not_a_file(folder):
    (folder / "dir.py").mkdir()
    with pytest.raises(ComponentNotFound, match="cannot read"):
        Registry().find("environment", "dir.py:X")
