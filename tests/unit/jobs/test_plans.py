"""Placeholders and job plans."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from atropos_cli.domain.job import Component, JobPlan, Resources
from atropos_cli.domain.placeholders import endpoint_parts, escape, fill, joined, tokens
from atropos_cli.jobs import guarded as guarded_launchers
from atropos_cli.ports.launcher import Launcher


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{port}", "<port>"),
        ("a{host}:{port:nccl}b", "a<host>:<port:nccl>b"),
        ("{endpoint:server0}", "<endpoint:server0>"),
        ("{endpoint:s.dist.host}", "<endpoint:s.dist.host>"),
        ("{{port}}", "{port}"),
        ("{{{port}}}", "{{port}}"),
        ("{{port}", "{<port>"),
        ('{"a":{port}}', '{"a":<port>}'),
        ('{"n": 1}', '{"n": 1}'),
        ("{other} {} {port:}", "{other} {} {port:}"),
    ],
)
def test_fill(text: str, filled: str) -> None:
    assert fill(text, lambda token: f"<{token}>") == filled


@given(st.text(alphabet="{}port:hs endi.", max_size=30) | st.sampled_from(["{port}", "{{run}}", "{endpoint:a.b.port}"]))
def test_escaped_text_comes_back_unchanged(text: str) -> None:
    assert fill(escape(text), lambda token: "REPLACED") == text
    assert tokens(escape(text)) == []


def test_parts_of_an_endpoint() -> None:
    assert endpoint_parts("endpoint:a") == ("a", None, None)
    assert endpoint_parts("endpoint:a.port") == ("a", None, "port")
    assert endpoint_parts("endpoint:a.dist") == ("a", "dist", None)
    assert endpoint_parts("endpoint:a.dist.host") == ("a", "dist", "host")
    assert joined("10.0.0.1", 80) == "10.0.0.1:80"
    assert joined("fe80::1", 80) == "[fe80::1]:80"


def part(name: str, role: str = "service", *argv: str, **more: Any) -> Component:
    return Component(name=name, role=role, argv=argv or ("x",), **more)  # type: ignore[arg-type]


def plan(*components: Component, **more: Any) -> JobPlan:
    return JobPlan(atropos_version="0", name="job", components=components, **more)


def test_a_plan_survives_json() -> None:
    made = plan(
        part("server0", "service", "{port}", ports=("http", "dist"), health="/health", gpus=(0, 1)),
        part("main", "main", "--url", "http://{endpoint:server0}/v1", "{endpoint:server0.dist.host}"),
        resources=Resources(nodes=1, gpus_per_node=2),
    )
    assert JobPlan.model_validate_json(made.model_dump_json()) == made
    assert made.main is not None
    assert made.main.awaits() == ("server0",)


@pytest.mark.parametrize(
    ("components", "complaint"),
    [
        ([part("a"), part("a")], "same name"),
        ([part("a", "main"), part("b", "main")], "at most one main"),
        ([part("a", node=1)], "node 1 of 1"),
        ([part("a", gpus=(2,))], "GPU 2 of 2"),
        ([part("a", after=("b",))], "no other component"),
        ([part("a", after=("a",))], "no other component"),
        ([part("a", after=("b",)), part("b", after=("a",))], "wait for each other"),
        ([part("a", after=("m",)), part("m", "main")], "cannot wait for the main"),
        ([part("a", ports=("p",)), part("m", "main", "{endpoint:a.q}")], "no such port"),
        ([part("a"), part("m", "main", "{endpoint:a}")], "no such port"),
    ],
)
def test_plans_that_cannot_work(components: list[Component], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        plan(*components, resources=Resources(gpus_per_node=2))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"argv": ()}, "at least 1"),
        ({"argv": ("a\0b",)}, "NUL"),
        ({"name": "a b"}, "not a name"),
        ({"name": "../x"}, "not a name"),
        ({"env": {"A-B": "1"}}, "not the name of an environment variable"),
        ({"health": "/h"}, "needs a port"),
        ({"argv": ("{port}",)}, "names no port"),
        ({"argv": ("{port:b}",), "ports": ("a",)}, "names no port"),
        ({"ports": ("host",)}, "cannot be the name of a port"),
        ({"ports": ("a", "a")}, "twice"),
        ({"gpus": (1, 1)}, "twice"),
        ({"role": "main", "ports": ("a",), "health": "/h"}, "only a service"),
    ],
)
def test_components_that_cannot_work(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Component.model_validate({"name": "a", "role": "service", "argv": ("x",), **settings})


def test_a_helper_belongs_to_main() -> None:
    with pytest.raises(ValidationError, match="helper 'h' refers to no endpoint of main"):
        JobPlan(
            atropos_version="0",
            name="x",
            components=(
                Component(name="main", role="main", argv=("true",)),
                Component(name="h", role="helper", argv=("true",)),
            ),
        )


def test_each_method_of_a_launcher_reaches_the_launcher() -> None:
    """One that the guard does not hand on would answer for every launcher with the default."""
    methods = {name for name, value in vars(Launcher).items() if inspect.isfunction(value) and name[0] != "_"}
    assert methods
    assert methods <= vars(guarded_launchers._Guarded).keys()
