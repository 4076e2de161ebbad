"""Which training plans are of the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.refs import ComponentRef
from atropos_cli.domain.training import TrainPlan
from atropos_cli.io.rundir import PlanChanged, check_same_identity


def plan(config: dict[str, Any], **access: Any) -> TrainPlan:
    trainer = ComponentRef(name="native", config=config)
    return TrainPlan(atropos_version="0", method="grpo", model="m", data=("d",), trainer=trainer, access=access)


@pytest.mark.parametrize("now", ["none", "fsdp2"])
def test_an_option_of_access_may_stand_in_an_older_plan_s_configuration(now: str) -> None:
    old = plan({"beta": 0.1, "sharding": "none"})
    check_same_identity(old, plan({"beta": 0.1}, sharding=now), Path("run"))
    check_same_identity(plan({"beta": 0.1}, sharding=now), old, Path("run"))


def test_what_decides_the_weights_may_not_change_with_it() -> None:
    with pytest.raises(PlanChanged) as caught:
        check_same_identity(plan({"beta": 0.1, "sharding": "none"}), plan({"beta": 0.2}, sharding="none"), Path("run"))
    assert "trainer.config.beta: 0.1 in the run, 0.2 now" in caught.value.message
    assert "sharding" not in caught.value.message
