"""`atropos_cli.testing`, the name of this package in 0.1.0, leads here."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)


def test_the_old_name_works_and_warns() -> None:
    code = (
        "import warnings, atropos_authoring\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    from atropos_cli.testing import EnvironmentContract\n"
        "    from atropos_cli.testing.mock_server import MockServer\n"
        "assert EnvironmentContract is atropos_authoring.EnvironmentContract\n"
        "MockServer(reply='x').start().stop()\n"
        "print([str(one.message) for one in told], [one.filename for one in told])\n"
    )
    done = run(code)
    assert done.stdout == "['atropos_cli.testing is now atropos_authoring'] ['<string>']\n", done.stderr
    assert (
        "DeprecationWarning: atropos_cli.testing is now atropos_authoring" in run("import atropos_cli.testing").stderr
    )


def test_without_this_package_it_names_the_line_that_installs_it() -> None:
    done = run("import sys; sys.modules['atropos_authoring'] = None; import atropos_cli.testing")
    assert done.stderr.splitlines()[-1].endswith(
        "atropos_cli.testing is now atropos_authoring: pip install atropos-authoring"
    )
