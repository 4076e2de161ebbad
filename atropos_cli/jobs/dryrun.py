"""A job that is not submitted: what would be written and called."""

from __future__ import annotations

import json
import shlex

from atropos_cli.console.output import Output
from atropos_cli.errors import ExitCode, LaunchError
from atropos_cli.jobs.prepare import Prepared
from atropos_cli.ports.launcher import Launcher


def show(out: Output, launcher: Launcher, prepared: Prepared, *, as_json: bool) -> int:
    """Print what would be written and called, and what the cluster says of it."""
    for doubt in launcher.doubts(prepared.spec):
        out.warning(doubt)
    script, call = launcher.render(prepared.spec), launcher.call(prepared.spec)
    verdict: str | None = None
    failure: LaunchError | None = None
    try:
        verdict = launcher.verdict(prepared.spec)
    except LaunchError as error:
        failure = error
    run = None if prepared.run is None else prepared.run.plan.model_dump(mode="json")
    if as_json:
        found = {"script": script, "plan": prepared.plan.model_dump(mode="json"), "run": run, "call": call}
        found["folders"] = [str(prepared.folder)]
        out.json({**found, "test_only": verdict or (failure.message if failure else None)})
    else:
        out.data(f"# folders: {prepared.folder}\n# the job\n{script}")
        out.data(f"# {prepared.folder / 'job.json'}\n{prepared.plan.model_dump_json(indent=2)}\n")
        if run is not None:
            out.data(f"# {prepared.folder / 'plan.json'}\n{json.dumps(run, indent=2, ensure_ascii=False)}\n")
        if call:
            out.data(f"# call\n{shlex.join(call)}")
        if launcher.asks is not None:
            out.data(f"# {launcher.asks}: {verdict or failure or launcher.asks.split()[0] + ' is not on this machine'}")
    if failure is not None:
        raise failure
    return ExitCode.OK
