"""A job: programs that run together in one allocation, and what they need. The twin of Plan for launchers.

    services    servers; they must stay up until everything else has ended
    main        the command the job is for; its exit code is the job's (at most one; without it the services
                run until somebody stops them)
    helpers     parts of main on other nodes; they start as soon as main has published its endpoint, and the job
                is done when main and all of them have ended with 0
    tasks       run to their end: those that name "main" in `after` behind it, the others before it

The plan travels as JSON (`atropos run FOLDER/job.json`). Arguments are never parsed by a shell.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.placeholders import endpoint_parts, tokens

Role = Literal["service", "main", "task", "helper"]
SERVICE_FAILED = 70
START_TIMEOUT = 75
JOB_FILE = "job.json"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name: letters, digits, - and _, a letter first, at most 63")
    return text


def _port_name(text: str) -> str:
    if text in ("host", "port"):
        raise ValueError(f"{text!r} cannot be the name of a port")
    return _name(text)


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("an argument cannot hold a NUL character")
    return text


Name = Annotated[str, AfterValidator(_name)]
PortName = Annotated[str, AfterValidator(_port_name)]
Text = Annotated[str, AfterValidator(_no_nul)]


class Warmup(Frozen):
    """One POST after the first healthy answer; the service is ready when it is answered with a 2xx status."""

    path: str
    json_body: JsonDict = Field(default_factory=dict)


class Component(Frozen):
    """One program. See domain/placeholders.py for what argv and env may hold.

    node: index into the nodes of the allocation. gpus: indices into the GPUs that the allocation has on that
    node; None leaves all visible, () none. ports: names of ports to pick on the node, the first is the one of
    its endpoint. port: number for the first of them, which must be free (None: one is picked). health: path
    that answers 200 when the service can work (None: ready once it runs). dead_status: status it answers when
    the service will never work again, though it runs. key_env: the variable with the key that the service wants, of
    the warm-up and of the programs that refer to its endpoint; where it is not set, it wants none.
    after: names of services whose endpoint must be published first (references in argv and env count by
    themselves), and of tasks or main that must have ended with 0. cwd: None is where the job was submitted.
    step_options: more options of its srun, such as a container image. python: the interpreter there.
    """

    name: Name
    role: Role
    argv: tuple[Text, ...] = Field(min_length=1)
    env: dict[str, Text] = Field(default_factory=dict)
    cwd: str | None = None
    node: int = Field(default=0, ge=0)
    gpus: tuple[int, ...] | None = None
    ports: tuple[PortName, ...] = ()
    port: int | None = Field(default=None, ge=1, le=65535)
    health: str | None = None
    dead_status: int | None = Field(default=None, ge=400, le=599)
    warmup: Warmup | None = None
    key_env: str | None = None
    after: tuple[Name, ...] = ()
    step_options: tuple[Text, ...] = ()
    python: str | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        where = f"component {self.name!r}"
        for variable in (*self.env, *([self.key_env] if self.key_env is not None else [])):
            if not _VARIABLE.fullmatch(variable):
                raise ValueError(f"{where}: {variable!r} is not the name of an environment variable")
        if len(set(self.ports)) < len(self.ports):
            raise ValueError(f"{where}: a port name is given twice")
        if (self.health or self.warmup or self.port) and not self.ports:
            raise ValueError(f"{where}: a health check or a port's number needs a port")
        if (self.health or self.warmup) and self.role != "service":
            raise ValueError(f"{where}: only a service has a health check")
        if self.dead_status is not None and self.health is None:
            raise ValueError(f"{where}: dead_status is an answer of the health check, and it has none")
        if self.gpus is not None and len(set(self.gpus)) < len(self.gpus):
            raise ValueError(f"{where}: a GPU is given twice")
        for token in self.tokens():
            kind, _, port = token.partition(":")
            if kind == "port" and (not self.ports or (port and port not in self.ports)):
                raise ValueError(f"{where}: {{{token}}} names no port of it (it has {', '.join(self.ports) or 'none'})")
        return self

    def tokens(self) -> list[str]:
        """All placeholders in argv and env."""
        return [token for text in (*self.argv, *self.env.values()) for token in tokens(text)]

    def awaits(self) -> tuple[str, ...]:
        """Everything it waits for: `after`, and the components whose endpoints it refers to."""
        named = [endpoint_parts(token)[0] for token in self.tokens() if token.startswith("endpoint:")]
        return tuple(dict.fromkeys((*self.after, *named)))


class Resources(Frozen):
    """What an allocation needs, in our words. None leaves the choice to the cluster."""

    nodes: int = Field(default=1, ge=1, description="Nodes.")
    gpus_per_node: int = Field(default=0, ge=0, description="GPUs on each node.")
    cpus_per_node: int | None = Field(default=None, ge=1, description="CPU cores on each node.")
    mem_mb: int | None = Field(default=None, ge=0, description="Memory per node in MiB; 0 is all of a node.")
    time_s: int | None = Field(default=None, ge=60, description="Time limit in seconds.")
    array: int | None = Field(default=None, ge=1, description="Number of array tasks, one shard each.")
    array_limit: int | None = Field(default=None, ge=1, description="How many of them may run at once.")
    signal_before_s: int | None = Field(default=None, ge=1, description="Seconds before the limit to stop orderly.")
    requeue: bool = Field(default=False, description="Queue the job again after the time limit or preemption.")


class Code(Frozen):
    """The code of a job. folder: where it was when the job was submitted; copy_at: where the job has it.

    commit, changed, diff: what git says of it (changed: not all is committed; diff: `git diff --stat`). digest, files,
    size: of the copy, None without one. left_out: names that are not in the copy.
    """

    folder: str
    commit: str | None = None
    changed: bool = False
    diff: str = ""
    copy_at: str | None = None
    digest: str | None = None
    files: int | None = None
    size: int | None = None
    left_out: tuple[str, ...] = ()


class JobPlan(Frozen):
    """Everything the supervisor needs. The folder of its file is the job's folder.

    expose: services listen for other hosts also when the job has one node. interface: network interface whose
    address is published (None: the address of the node's name). grace: seconds a program gets after a polite
    stop. drain: the same for main, which may save its work. max_requeues: how often a job that was stopped
    by its time limit is queued again. shard: (index, count) of one task of an array. setup: lines of bash before
    everything else, whose variables all programs get. code: the facts about the job's code.
    """

    schema_version: int = 1
    atropos_version: str
    command: Literal["job"] = "job"
    name: str
    components: tuple[Component, ...] = Field(min_length=1)
    resources: Resources = Field(default_factory=Resources)
    env: dict[str, Text] = Field(default_factory=dict)
    cwd: str | None = None
    expose: bool = False
    interface: str | None = None
    start_timeout: float = Field(default=1800.0, gt=0)
    grace: float = Field(default=20.0, ge=0)
    drain: float = Field(default=60.0, ge=0)
    max_requeues: int = Field(default=0, ge=0)
    shard: tuple[int, int] | None = None
    setup: tuple[Text, ...] = ()
    code: Code | None = None

    @property
    def services(self) -> tuple[Component, ...]:
        return tuple(item for item in self.components if item.role == "service")

    @property
    def main(self) -> Component | None:
        return next((item for item in self.components if item.role == "main"), None)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        by_name = {item.name: item for item in self.components}
        if len(by_name) < len(self.components):
            raise ValueError("two components have the same name")
        if sum(item.role == "main" for item in self.components) > 1:
            raise ValueError("a job has at most one main component")
        gpus = self.resources.gpus_per_node
        for item in self.components:
            if item.node >= self.resources.nodes:
                raise ValueError(f"component {item.name!r} is on node {item.node} of {self.resources.nodes}")
            if item.role == "helper" and (self.main is None or self.main.name not in item.awaits()):
                raise ValueError(f"helper {item.name!r} refers to no endpoint of main")
            if gpus and item.gpus and max(item.gpus) >= gpus:
                raise ValueError(f"component {item.name!r} wants GPU {max(item.gpus)} of {gpus} (counted from 0)")
            self._check_references(item, by_name)
        self._check_order(by_name)
        return self

    def _check_references(self, item: Component, by_name: dict[str, Component]) -> None:
        for name in item.awaits():
            if name not in by_name or name == item.name:
                raise ValueError(f"component {item.name!r} waits for {name!r}, which is no other component")
            if item.role == "service" and by_name[name].role == "main":
                raise ValueError(f"service {item.name!r} cannot wait for the main component")
        for token in item.tokens():
            if not token.startswith("endpoint:"):
                continue
            name, port, part = endpoint_parts(token)
            ports = by_name[name].ports
            if (port is not None and port not in ports) or (not ports and part != "host"):
                raise ValueError(f"component {item.name!r}: {{{token}}}: {name!r} has no such port")

    def _check_order(self, by_name: dict[str, Component]) -> None:
        done: set[str] = set()
        left = dict(by_name)
        while left:
            ready = [name for name, item in left.items() if done.issuperset(item.awaits())]
            if not ready:
                raise ValueError(f"these components wait for each other: {', '.join(left)}")
            done.update(ready)
            for name in ready:
                del left[name]
