"""The plugin as atropos sees it: what is registered, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import atropos_local


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)


def test_the_manifest_imports_nothing_heavy() -> None:
    got = run("""
        import sys, atropos_local
        list(atropos_local.atropos_register_backends()), list(atropos_local.atropos_doctor())
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "transformers", "numpy", "gguf"}))
    """)
    assert got.stdout.strip() == "[]", got.stderr


def test_options_can_be_read_without_loading_torch() -> None:
    got = run("""
        import sys
        from atropos_local.backend import LocalConfig
        print(LocalConfig().dtype, "torch" in sys.modules)
    """)
    assert got.stdout.strip() == "auto False", got.stderr


def test_the_registry_finds_the_backend_by_name_and_by_model(atropos_registry) -> None:
    registration = atropos_registry.find("backend", "local")
    assert registration.dist == "atropos-local"
    assert atropos_registry.backend_for_model("SmolLM2").name == "local"
    (spec,) = atropos_local.atropos_register_backends()
    assert (spec.requires, spec.extra) == (("torch", "transformers"), "torch")


def test_a_missing_package_gives_the_command_that_installs_it() -> None:
    got = run("""
        import importlib.util, sys
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
        import atropos_local
        from atropos_cli.sdk import PluginError
        (spec,) = atropos_local.atropos_register_backends()
        try:
            spec.load(dist="atropos-local")
        except PluginError as error:
            print(int(error.exit_code), error.message, "|", error.hint)
    """)
    assert got.stdout.startswith("4 "), got.stderr
    assert "No module named 'torch'" in got.stdout
    assert got.stdout.strip().endswith("| pip install 'atropos-local[torch]'")


def test_doctor_reports_each_part() -> None:
    checks = {name: status for name, status, _ in atropos_local.atropos_doctor()}
    assert set(checks) == {f"local: {part}" for part in ("torch", "transformers", "gguf", "accelerate", "smollm2")}
    assert set(checks.values()) <= {"ok", "warn", "info"}
