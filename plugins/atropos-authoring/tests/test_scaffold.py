"""Starting a plugin from a template: names, files, and never overwriting."""

from __future__ import annotations

import os

import pytest
from atropos_authoring.scaffold import instantiate, placeholders, planned_files

from atropos_cli.errors import DataError, UsageError


@pytest.fixture
def template(tmp_path):
    folder = tmp_path / "template"
    (folder / "src" / "atropos_template" / "__pycache__").mkdir(parents=True)
    (folder / "src" / "atropos_template" / "template_name.py").write_text("class TemplateName: 'template-name'\n")
    (folder / "src" / "atropos_template" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (folder / "pyproject.toml").write_text("name = 'atropos-template'  # größe\n", encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\xff\xfetemplate-name")
    (folder / ".gitignore").write_text("dist/\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o555)
    (folder / "link").symlink_to("/etc/passwd")
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my-maze", ("atropos-my-maze", "atropos_my_maze", "my-maze", "my_maze", "MyMaze")),
        ("my_maze", ("atropos-my-maze", "atropos_my_maze", "my-maze", "my_maze", "MyMaze")),
        ("atropos-maze2", ("atropos-maze2", "atropos_maze2", "maze2", "maze2", "Maze2")),
        ("math", ("atropos-math", "atropos_math", "math", "math", "Math")),
    ],
)
def test_a_name_in_all_its_forms(name, expected):
    assert tuple(placeholders(name).values()) == expected


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("MyMaze", "my-maze"),
        ("my maze", "my-maze"),
        ("../evil", "evil"),
        ("9lives", "lives"),
        ("a--b", "a-b"),
        ("for", "my-for"),
        ("atropos-class", "my-class"),
        ("", "my-maze"),
        ("é", "my-maze"),
        ("x\n", "x"),
        ("a" * 61, "a" * 60),
        ("-x", "x"),
        ("x/y", "x-y"),
    ],
)
def test_a_bad_name_is_refused_with_a_better_one(name, suggestion):
    with pytest.raises(UsageError) as caught:
        placeholders(name)
    assert caught.value.hint == f"for example {suggestion}"
    assert placeholders(suggestion)


def test_names_are_put_into_files_and_file_names(template, tmp_path):
    made = instantiate(template, tmp_path / "out", "my-maze")
    relative = [str(path.relative_to(tmp_path / "out")) for path in made]
    assert relative == [
        ".gitignore",
        "picture.png",
        "pyproject.toml",
        "run.sh",
        "src/atropos_my_maze/my_maze.py",
    ]
    assert relative == [str(path) for path in planned_files(template, "my-maze")]
    assert made[4].read_text() == "class MyMaze: 'my-maze'\n"
    assert made[2].read_text(encoding="utf-8") == "name = 'atropos-my-maze'  # größe\n"
    assert made[1].read_bytes() == b"\xff\xfetemplate-name"
    assert os.access(made[3], os.X_OK)
    assert made[3].stat().st_mode & 0o200


def test_a_new_name_that_contains_a_placeholder_is_not_replaced_twice(template, tmp_path):
    made = instantiate(template, tmp_path / "out", "template-name-x")
    assert made[4].name == "template_name_x.py"
    assert made[4].read_text() == "class TemplateNameX: 'template-name-x'\n"


def test_an_empty_folder_may_be_filled_but_nothing_is_overwritten(template, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    made = instantiate(template, out, "a")
    made[0].write_text("mine")
    with pytest.raises(DataError, match="already there"):
        instantiate(template, out, "a")
    assert made[0].read_text() == "mine"
    with pytest.raises(DataError, match="already there"):
        instantiate(template, made[0], "a")


def test_a_missing_template_and_a_full_disk_are_data_errors(template, tmp_path):
    with pytest.raises(DataError) as caught:
        instantiate(tmp_path / "templat", tmp_path / "out", "a")
    assert caught.value.hint == "did you mean template?"
    with pytest.raises(DataError, match="cannot write"):
        instantiate(template, template / "pyproject.toml" / "sub", "a")
    assert not (tmp_path / "out").exists()


def test_a_bad_name_writes_nothing(template, tmp_path):
    with pytest.raises(UsageError):
        instantiate(template, tmp_path / "out", "No")
    assert not (tmp_path / "out").exists()
