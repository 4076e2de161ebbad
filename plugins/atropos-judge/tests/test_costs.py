"""What a judge's requests cost is the run's: counted by its model, limited, and kept over sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atropos_authoring.mock_server import MockServer

PRICES = '["judge-model"]\ninput = 0\noutput = 1000\n[scripted]\ninput = 0\noutput = 0\n'


def run(cli: Any, server: MockServer, *args: str) -> Any:
    server.model.reply = "Score: 10"
    Path("prices.toml").write_text(PRICES)
    return cli(
        *("gen", "tasks.py:Tasks", "--backend", "scripted", "--backend.replies", "good", "--model", "scripted"),
        *("--group-size", "2", "--reward", "judge", "--judge.model", "judge-model", "--judge.cache", "off"),
        *("--judge.base-url", server.base_url, "--judge.max-tokens", "20", "--json", *args),
    )


def test_a_judge_is_paid_from_the_runs_money(cli: Any, server: MockServer) -> None:
    done = run(cli, server, "--prices", "prices.toml", "-o", "run")
    assert done.code == 0, done.stderr
    summary = done.json
    assert len(server.generations) == 12
    assert summary["usage"]["judge-model"]["requests"] == 12
    assert summary["cost"] == 12 * 10 * 1000 / 1e6
    assert "cost: 0.1200 USD" in done.stderr


def test_the_limit_holds_for_judges(cli: Any, server: MockServer) -> None:
    done = run(cli, server, "--prices", "prices.toml", "--max-cost", "0.08", "-o", "run", "--workers", "1")
    assert done.code == 130, done.stderr
    assert 0 < len(server.generations) * 10 * 1000 / 1e6 <= 0.08
    assert "stopped at the cost limit" in done.stderr
    assert done.json["rollouts_failed"] == 0, "a verdict that is not paid for is no failure"
    more = run(cli, server, "--prices", "prices.toml", "--max-cost", "9", "-o", "run", "--resume")
    assert (more.code, more.json["groups_done"], more.json["rollouts_failed"]) == (0, 6, 0)


def test_a_judge_without_a_price_is_named_before_the_run(cli: Any, server: MockServer) -> None:
    Path("half.toml").write_text("[scripted]\ninput = 0\noutput = 0\n")
    done = run(cli, server, "--prices", "half.toml", "--max-cost", "1", "-o", "run")
    assert done.code == 3
    assert "judge-model" in done.stderr
    assert not server.generations
