"""What every first-party plugin keeps to: its imports, its metadata, its layout."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import atropos_cli

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
FOR_TESTS = "atropos_authoring"
"""What the tests of every plugin may use, and its extra `test` then names."""
OURS = {package.name for plugin in ROOT.glob("plugins/*") for package in plugin.glob("src/*") if package.is_dir()}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import in a file, relative ones left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "atropos_cli":
                yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)
            else:
                yield node.lineno, node.module


def files(plugin: Path, folder: str) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(ROOT)), path) for path in sorted((plugin / folder).rglob("*.py"))]


def test_there_are_plugins() -> None:
    assert {plugin.name for plugin in PLUGINS} >= {"atropos-arithmetic", "atropos-local", "atropos-textworld"}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_imports_only_the_sdk_of_ours(plugin: Path) -> None:
    own = {package.name for package in (plugin / "src").iterdir() if package.is_dir()}
    wrong = []
    for name, path in files(plugin, "src"):
        for line, module in imports(path):
            top = module.partition(".")[0]
            if (top == "atropos_cli" and not f"{module}.".startswith("atropos_cli.sdk.")) or top in OURS - own:
                wrong.append(f"{name}:{line} imports {module}")
    assert not wrong


def test_names_of_the_sdk_are_imported_from_the_module_that_has_them() -> None:
    """Old places still work, with a warning; our own code, docs and templates use the new ones."""
    from atropos_cli import sdk

    wrong = []
    for folder in ("atropos_cli", "docs", "examples", "plugins", "templates", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and "sdk.md" not in path.name:
                text = path.read_text(encoding="utf-8")
                for found in re.findall(r"from atropos_cli\.sdk import (\([^)]*\)|[\w, ]+)", text):
                    names = {name.split(" as ")[0].strip() for name in found.strip("()").split(",")} - {"", "*"}
                    wrong += [f"{path.relative_to(ROOT)}: {name}" for name in names - set(sdk.__all__)]
    assert not wrong


def test_importing_the_sdk_brings_no_room_above_the_ports() -> None:
    """Every manifest imports it, whatever command runs."""
    program = "import sys, atropos_cli.sdk; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("atropos_cli.")}
    assert not rooms & {"builtin", "cli", "config", "console", "datasets", "evaluation", "io", "models", "rollout"}
    assert not {"typer", "httpx", "jinja2", "yaml"} & set(loaded)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugins_tests_use_no_other_plugin(plugin: Path) -> None:
    """Those that it depends on are there wherever it is."""
    own = {package.name for package in (plugin / "src").iterdir() if package.is_dir()}
    project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
    own |= {re.match("[a-z-]+", requirement).group().replace("-", "_") for requirement in project["dependencies"]}
    wrong = [
        f"{name}:{line} imports {module}"
        for name, path in files(plugin, "tests")
        for line, module in imports(path)
        if module.partition(".")[0] in OURS - own - {FOR_TESTS}
    ]
    assert not wrong


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_the_extra_of_its_tests_names_what_they_use(plugin: Path) -> None:
    used = any(
        module.partition(".")[0] == FOR_TESTS for _, path in files(plugin, "tests") for _, module in imports(path)
    )
    extras = tomllib.loads((plugin / "pyproject.toml").read_text())["project"].get("optional-dependencies", {})
    named = any(requirement.startswith("atropos-authoring") for requirement in extras.get("test", ()))
    assert named == (used and plugin.name != "atropos-authoring")


def test_the_core_imports_no_plugin() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sorted((ROOT / "atropos_cli").rglob("*.py"))
        for line, module in imports(path)
        if module.partition(".")[0] in OURS
    ]
    assert not wrong


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_manifest_imports_nothing_but_the_sdk(plugin: Path) -> None:
    """The module of the entry point is imported whenever components are looked for: it must be quick."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
    for target in project["entry-points"].get("atropos", {}).values():
        module = plugin / "src" / Path(*target.split("."))
        path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in top]
        allowed = ("atropos_cli.sdk", "__future__")
        wrong = [n for n in names if n not in allowed and n.partition(".")[0] not in sys.stdlib_module_names]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong} at module level"


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_metadata_and_layout(plugin: Path) -> None:
    data = tomllib.loads((plugin / "pyproject.toml").read_text())
    project = data["project"]
    assert project["name"] == plugin.name
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "MIT"
    assert data["build-system"]["build-backend"] == "hatchling.build"
    assert data["tool"]["uv"]["sources"]["atropos-cli"] == {"workspace": True}
    assert project["version"] == atropos_cli.__version__, "run: python .ci/version VERSION"
    assert (plugin / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len((plugin / "README.md").read_text().splitlines()) > 5
    (package,) = [path for path in (plugin / "src").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert package.name == plugin.name.replace("-", "_")
    assert (package / "py.typed").exists()
    assert list((plugin / "tests").rglob("test_*.py"))


def test_first_party_dependencies_are_bounded_by_the_minor_version() -> None:
    """A plugin of 0.1 must not be installed beside a core of 0.2, which may have changed the sdk."""
    files = [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("templates/*/pyproject.toml")]
    major, minor, *_ = atropos_cli.__version__.split(".")
    bound = re.compile(rf">=({major}\.{minor}|{re.escape(atropos_cli.__version__)}),<{major}\.{int(minor) + 1}$")
    seen = 0
    for file in files:
        project = tomllib.loads(file.read_text())["project"]
        for requirement in itertools.chain(
            project.get("dependencies", ()), *project.get("optional-dependencies", {}).values()
        ):
            name, version = re.match(r"([a-z-]+)(?:\[[^]]*\])?(.*)", requirement).groups()
            if name.startswith("atropos-") and name != project["name"]:
                seen += 1
                assert bound.match(version), f"{file.relative_to(ROOT)}: {requirement}"
    assert seen > len(PLUGINS)


def test_the_extra_all_names_every_plugin_that_runs_on_any_machine() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["all"]
    named = {re.match("[a-z-]+", requirement).group() for requirement in extras} - {"atropos-cli"}
    # These need a GPU, a cluster, an account, or a checkout of somebody else's.
    apart = {"atropos-intern-bootcamp", "atropos-litellm", "atropos-ray", "atropos-tinker", "atropos-vllm"}
    assert named == {plugin.name for plugin in PLUGINS} - apart


def test_the_core_is_typed() -> None:
    assert (ROOT / "atropos_cli" / "py.typed").exists()
