"""What the product says of jobs of every kind on a real SLURM, whatever happens to them.

    python tests/e2e/slurm_matrix.py OUT.md [CONDITION...]

A condition happens to jobs of all kinds at once: gen, train, gen with its own server, an array, and a pipeline of two
steps. Each has somebody who waits for it and somebody who follows its log. `Cell` collects what they were told, and
`untrue` compares it with what SLURM and the files say.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import slurm_cluster
from slurm_cells import GROUPS, KINDS, LONG, Cell, atropos, set_up, until
from slurm_cluster import Cluster

# Conditions: what happens to jobs that are under way ------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """The truth: the last state, words of its reason, and whether the work is complete."""

    state: str = "finished"
    reason: str = ""
    complete: bool = True


class Conditions:
    """Each method makes its condition happen, and returns the truth for the cells of its kind."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster = cluster
        self.place = place

    def cells(self, name: str, *options: str, requeue: bool = False, limit: int = GROUPS) -> list[Cell]:
        kinds = [kind for kind in KINDS if kind in os.environ.get("MATRIX_KINDS", " ".join(KINDS)).split()]
        return [Cell(kind, self.place, f"{name}-{kind}", options, requeue, limit) for kind in kinds]

    def under_way(self, cells: list[Cell]) -> None:
        for cell in cells:
            cell.submit()
        for cell in cells:
            cell.begun()

    def occupy(self, seconds: int = 5) -> None:
        """A job of higher priority takes every core."""
        words = ("-p", "high", "-N", str(self.cluster.nodes), "--exclusive", "--mem-per-cpu=1", "-t", "5")
        self.cluster.output("sbatch", *words, "-J", "important", "-o", "/dev/null", "--wrap", f"sleep {seconds}")

    def first(self, cell: Cell) -> str:
        return next(iter(cell.ids.values()))

    def statuses(self, cells: list[Cell], when: str) -> None:
        for cell in cells:
            cell.status(when)

    def fresh(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("plain")
        for cell in cells:
            cell.submit()
        return cells, Wanted()

    def again(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("plain")
        for cell in cells:
            cell.submit()
        return cells, Wanted()

    def larger(self) -> tuple[list[Cell], Wanted]:
        """Held in the queue for a while: what lies in the folder is of the job before."""
        cells = self.cells("plain", "--sbatch", "hold", limit=GROUPS + 3)
        for cell in cells:
            cell.submit()
        self.statuses(cells, "while held")
        for job in [job for cell in cells for job in cell.ids.values()]:
            self.cluster.output("scontrol", "release", job)
        return cells, Wanted()

    def requeued(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("requeued", requeue=True, limit=LONG)
        self.under_way(cells)
        for cell in cells:
            self.cluster.output("scontrol", "requeue", self.first(cell))
        self.statuses(cells, "after it")
        return cells, Wanted()

    def _restarted(self, job_id: str) -> bool:
        """Has it been started again, or was it faster than its condition?"""
        job = self.cluster.job(job_id)
        return job.get("Restarts") != "0" or job.get("JobState") in slurm_cluster.ENDED

    def preempted(self) -> tuple[list[Cell], Wanted]:
        """GraceTime=30; --requeue."""
        cells = self.cells("preempted", requeue=True, limit=LONG)
        self.under_way(cells)
        self.occupy(20)
        until(lambda: all(self._restarted(self.first(cell)) for cell in cells), 300)
        self.statuses(cells, "after it")
        return cells, Wanted()

    def preempted_for_good(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("preempted-for-good", limit=500)
        self.under_way(cells)
        self.occupy()
        return cells, Wanted("failed", "preempted", complete=False)

    def thrown_out(self) -> tuple[list[Cell], Wanted]:
        """GraceTime=0; --requeue."""
        cells = self.cells("thrown-out", "--sbatch", "partition=now", requeue=True, limit=LONG)
        self.under_way(cells)
        self.occupy(20)
        until(lambda: all(self._restarted(self.first(cell)) for cell in cells), 300)
        self.statuses(cells, "after it")
        return cells, Wanted()

    def thrown_out_for_good(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("thrown-out-for-good", "--sbatch", "partition=now", limit=500)
        self.under_way(cells)
        self.occupy()
        return cells, Wanted("failed", "preempted", complete=False)

    def time_limit(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("limit", "--time", "1m", limit=500)
        for cell in cells:
            cell.submit()
        return cells, Wanted("failed", "time limit", complete=False)

    def time_limit_again(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("limit-again", "--time", "2m", requeue=True, limit=60)
        for cell in cells:
            cell.submit()
        return cells, Wanted()

    def node_down(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("node-down", limit=500)
        self.under_way(cells)
        self._cut(cells)
        return cells, Wanted("failed", "node", complete=False)

    def node_down_again(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("node-down-again", requeue=True, limit=LONG)
        self.under_way(cells)
        self._cut(cells)
        return cells, Wanted()

    def _cut(self, cells: list[Cell]) -> None:
        numbers = {int(self.cluster.job(self.first(cell))["BatchHost"][1:]) for cell in cells}
        for number in numbers:
            self.cluster.kill_node(number)
        self.statuses(cells, "before SLURM notices")
        for number in numbers:
            self.cluster.output("scontrol", "update", f"nodename=n{number}", "state=down", "reason=cut")
        self.statuses(cells, "after it")
        for number in numbers:
            self.cluster.start_node(number)
            self.cluster.output("scontrol", "update", f"nodename=n{number}", "state=resume")

    def controller_paused(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("paused", limit=LONG)
        self.under_way(cells)
        self.cluster.signal_controller(signal.SIGSTOP)
        try:
            time.sleep(10)
            self.statuses(cells[:2], "meanwhile")
            time.sleep(30)
        finally:
            self.cluster.signal_controller(signal.SIGCONT)
        return cells, Wanted()

    def controller_killed(self) -> tuple[list[Cell], Wanted]:
        """The jobs end while there is no controller."""
        cells = self.cells("killed", limit=LONG)
        self.under_way(cells)
        self.cluster.kill_controller()
        self.statuses(cells[:2], "meanwhile")
        time.sleep(20)
        self.cluster.start_controller()
        return cells, Wanted()

    def cancelled(self) -> tuple[list[Cell], Wanted]:
        cells = self.cells("cancelled", limit=500)
        self.under_way(cells)
        for cell in cells:
            done = atropos("slurm", "cancel", str(cell.job))
            cell.said["cancel"] = (done.stdout + done.stderr).strip().splitlines()[0]
        return cells, Wanted("cancelled", "", complete=False)


CONDITIONS = tuple(name for name in vars(Conditions) if not name.startswith("_"))[5:]


# The truth ------------------------------------------------------------------------------------------------------------


def observed(conditions: Conditions, name: str) -> list[tuple[Cell, list[str]]]:
    """The cells of a condition after the end of their jobs, each with what is untrue of it."""
    cells, wanted = getattr(conditions, name)()
    found = []
    for cell in cells:
        try:
            cell.finish()
            for step, job in cell.ids.items():
                cell.said[f"SLURM, {step}"] = _of_slurm(conditions.cluster.wait(job, 120))
        except AssertionError as error:
            found.append((cell, [f"does not end: {error}"]))
            continue
        end = cell.status("at the end")
        found.append((cell, untrue(cell, end, wanted)))
    return found


def _of_slurm(job: dict[str, str]) -> str:
    return f"{job['JobState']} {job['ExitCode']} Restarts={job.get('Restarts')} {job.get('Reason')}"


def untrue(cell: Cell, end: dict[str, Any], wanted: Wanted) -> list[str]:
    """What was said and does not hold."""
    said, wrong = cell.said, []
    if end["state"] != wanted.state:
        wrong.append(f"status: {end['state']}, not {wanted.state}")
    if wanted.reason not in str(end["reason"]):
        wrong.append(f"status: {end['reason']!r} does not say {wanted.reason!r}")
    if said["code of status at the end"] != ("0" if wanted.state == "finished" else "1"):
        wrong.append(f"status ends with {said['code of status at the end']}")
    parts = [part for shard in end.get("shards", [end]) for part in shard["components"]]
    if running := [part["name"] for part in parts if part["state"] == "running"]:
        wrong.append(f"status: {running} still run")
    if "exit code" in said:
        if (said["exit code"] == "0") != (wanted.state == "finished"):
            wrong.append(f"--wait ends with {said['exit code']}")
        if wanted.state not in said["--wait"]:
            wrong.append(f"--wait says {said['--wait']}")
        if wanted.reason not in said["--wait"]:
            wrong.append(f"--wait does not say {wanted.reason!r}: {said['--wait']}")
    if said["code of logs -f"] != "0":
        wrong.append(f"logs -f ends with {said['code of logs -f']}")
    stored = cell.amount()
    if (wanted.complete and stored != cell.limit) or stored > cell.limit:
        wrong.append(f"{stored} of {cell.limit} groups or steps")
    if cell.kind != "train" and len(set(cell.groups())) != len(cell.groups()):
        wrong.append("groups that are stored twice")
    for when in ("while held", "after it", "before SLURM notices", "meanwhile"):
        text = said.get(f"status {when}", "pending")
        early = text.partition(":")[0]
        ended_there = when == "after it" and not wanted.complete and early == wanted.state
        first = next((text for key, text in said.items() if key.startswith("SLURM")), "")
        if early == "finished" and when != "while held" and first.startswith("COMPLETED 0:0 Restarts=0"):
            continue  # a slow machine: it had ended before the condition came
        silent = when == "meanwhile" and early in ("unknown", "finished")
        if early not in ("pending", "running") and not ended_there and not silent:
            wrong.append(f"status {when}: {text}")
    return wrong


def table(rows: list[tuple[str, Cell, list[str]]]) -> str:
    """The matrix in markdown."""
    lines = ["| condition | job | what each says | untrue |", "|---|---|---|---|"]
    for name, cell, wrong in rows:
        said = "<br>".join(f"{key}: {text}" for key, text in cell.said.items() if key != "log")
        safe = said.replace("|", "/").replace("\n", " ").replace(str(cell.place), "$PLACE")
        lines.append(f"| {name} | {cell.kind} | {safe} | {'; '.join(wrong) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def loaded_once() -> None:
    """What every call would import."""
    import atropos_pipeline.commands  # noqa: F401
    import atropos_slurm.launcher  # noqa: F401
    import atropos_training.train  # noqa: F401

    from atropos_cli.cli.commands import gen, job  # noqa: F401


def main() -> None:
    loaded_once()
    out, names = Path(sys.argv[1]), sys.argv[2:] or CONDITIONS
    rows: list[tuple[str, Cell, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder, slurm_cluster.running(Path(folder, "c"), cpus=24, preempt=True) as c:
        place = Path(folder, "place")
        place.mkdir()
        set_up(place)
        os.chdir(place)
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "PATH": f"{place}/bin{os.pathsep}{os.environ['PATH']}"}
        for name in names:
            began = time.monotonic()
            try:
                found = observed(Conditions(c, place), name)
            except AssertionError as error:
                print(f"{name}: {error}", flush=True)
                if os.environ.get("MATRIX_STOP"):
                    breakpoint()
                continue
            rows += [(name, cell, wrong) for cell, wrong in found]
            for cell, wrong in found:
                print(f"{name} {cell.kind}: {'; '.join(wrong) or 'true'}", flush=True)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
            out.write_text(table(rows))
    sys.exit(any(wrong for _, _, wrong in rows))


if __name__ == "__main__":
    main()
