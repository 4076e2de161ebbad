"""Statistics of rollouts: estimators against the table of worked rows, streams against their definitions."""

from __future__ import annotations

import json
import math
import statistics
from random import Random
from typing import Any

import case_tables
import pytest

from atropos_cli.analysis import groups, keyed
from atropos_cli.analysis.analysis import Analysis
from atropos_cli.analysis.charts import charts_of
from atropos_cli.analysis.options import AnalysisOptions
from atropos_cli.analysis.success import SuccessRule
from atropos_cli.analysis.summaries import no_pass, told
from atropos_cli.analysis.totals import TaskTotal
from atropos_cli.errors import UsageError
from atropos_cli.io.formats import detect
from atropos_cli.io.records import Record
from atropos_cli.stats import estimators, streaming
from atropos_cli.stats.charts import histogram
from atropos_cli.stats.estimators import CountError, Threshold
from atropos_cli.stats.svg import nice_ticks, svg

OURS = {"pass_at_k", "pass_hat_k", "expected_best_of_k", "group_stats", "retention"}


@pytest.mark.parametrize("row", case_tables.params("passk", lambda row: row["fn"] in OURS))
def test_row(row: dict[str, Any]) -> None:
    given, expected = dict(row["input"]), row["expected"]
    if isinstance(expected, dict) and "error" in expected:
        with pytest.raises(CountError) as failure:
            getattr(estimators, row["fn"])(**given)
        assert failure.value.code == expected["error"]
    elif row["fn"] == "retention":
        kept = groups.Retention(Threshold(given["threshold"], given["op"]))
        for rewards in given["groups"]:
            kept.add(sum(map(kept.threshold.reached, rewards)), len(rewards))
        result = kept.as_json()
        assert {key: result[key] for key in expected} == pytest.approx(expected, abs=row["tol"], nan_ok=True)
    elif row["fn"] == "group_stats":
        tally = groups.GroupTally()
        for rewards in filter(None, given["groups"]):
            tally.add(len(rewards), min(rewards), max(rewards))
        result = tally.as_json(given["min_reward"], given["max_reward"])
        expected.pop("mean_reward")
        assert {key: result[key] for key in expected} == pytest.approx(expected, abs=row["tol"])
    else:
        assert getattr(estimators, row["fn"])(**given) == pytest.approx(expected, abs=row["tol"])


def test_best_of_k_is_pass_at_k_for_zeros_and_ones() -> None:
    for n, c, k in [(8, 3, 2), (8, 0, 4), (8, 8, 8), (200, 7, 50)]:
        rewards = [1.0] * c + [0.0] * (n - c)
        assert estimators.expected_best_of_k(rewards, k) == pytest.approx(estimators.pass_at_k(n, c, k))


def test_moments_and_quantiles_of_a_small_series_are_exact() -> None:
    random = Random(3)
    values = [random.gauss(5, 3) for _ in range(999)]
    series = streaming.Series()
    for value in values:
        series.add(value)
    data = series.as_json()
    assert data["mean"] == pytest.approx(statistics.fmean(values))
    assert data["std"] == pytest.approx(statistics.stdev(values))
    assert data["quantiles_from"] == "all values"
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    assert data["quantiles"] == pytest.approx(
        {"0.05": cuts[0], "0.25": cuts[4], "0.5": cuts[9], "0.75": cuts[14], "0.95": cuts[18]}
    )


def test_a_long_series_keeps_a_sample_and_says_so() -> None:
    series = streaming.Series()
    for i in range(50_000):
        series.add(i / 50_000)
    assert len(series.sample) == streaming.SAMPLE
    data = series.as_json()
    assert data["quantiles_from"] == "a random sample of 10000"
    assert data["quantiles"]["0.5"] == pytest.approx(0.5, abs=0.02)
    assert data["max"] == 49_999 / 50_000


def test_correlation() -> None:
    correlation = streaming.Correlation()
    for x, y in [(1, 2), (2, 4.1), (3, 5.9), (4, 8.2)]:
        correlation.add(x, y)
    assert correlation.value == pytest.approx(statistics.correlation([1, 2, 3, 4], [2, 4.1, 5.9, 8.2]))
    flat = streaming.Correlation()
    for x in (1.0, 2.0):
        flat.add(x, 7.0)
    assert flat.value is None


def test_totals_beyond_the_limit_go_to_files_and_come_back_whole() -> None:
    with keyed.KeyedTotals(TaskTotal, limit=10) as table, keyed.KeyedTotals(TaskTotal) as reference:
        random = Random(0)
        for _ in range(2_000):
            key, reward = f"task {random.randrange(97)} \u2028é", random.choice([0.0, 0.5, 1.0])
            for one in (table, reference):
                total = one.get(key)
                total.rollouts += 1
                total.add_reward(reward)
        assert dict(table.items()) == dict(reference.items())


def record(row: dict[str, Any], line: int = 1) -> Record:
    form = detect(row)
    assert form is not None
    return form.read(row, "r.jsonl", line)


def analysed(*given: dict[str, Any], **options: Any) -> dict[str, Any]:
    with Analysis(AnalysisOptions(**options)) as analysis:
        for line, row in enumerate(given, start=1):
            analysis.add(record(row, line))
        return analysis.report().as_json()


def group(ident: str, scores: list[Any], **more: Any) -> dict[str, Any]:
    messages = [
        [{"role": "user", "content": ident}, {"role": "assistant", "content": f"r{i}"}] for i in range(len(scores))
    ]
    return {"item_id": ident, "messages": messages, "scores": scores, **more}


def only(report: dict[str, Any]) -> dict[str, Any]:
    (environment,) = report["environments"].values()
    return dict(environment)


def test_zero_std_share_and_its_extremes() -> None:
    data = only(
        analysed(group("a", [1, 1]), group("b", [0, 0]), group("c", [1, 0]), group("d", [0.5, 0.5]), group("e", [1]))
    )
    stats = data["group_stats"]
    assert stats == {"groups": 4, "frac_reward_zero_std": 0.75, "frac_all_max": 0.25, "frac_all_min": 0.25}


def test_extremes_that_come_late_forget_the_earlier_ones() -> None:
    data = only(analysed(group("a", [1, 1]), group("b", [2, 2]), group("c", [3, 0])))
    assert data["group_stats"]["frac_all_max"] == 0.0
    assert data["group_stats"]["frac_reward_zero_std"] == pytest.approx(2 / 3)


def test_rewards_that_are_all_the_same_have_no_extremes() -> None:
    data = only(analysed(group("a", [0, 0]), group("b", [0, 0])))
    assert data["group_stats"]["frac_all_max"] is None
    assert data["success"]["count"] == 0, "a maximum of 0 is no success"
    assert "not above 0" in data["success"]["rule"]


def test_environments_never_share_a_number() -> None:
    report = analysed(group("1", [1], env="math"), group("2", [4200], env="game"))
    assert {name: env["reward"]["mean"] for name, env in report["environments"].items()} == {"math": 1, "game": 4200}
    assert any("never put together" in note for note in report["notes"])


def test_the_own_verdict_of_the_environment_comes_before_the_highest_reward() -> None:
    won = {"messages": [{"role": "user", "content": "g"}, {"role": "assistant", "content": "x"}]}
    data = only(analysed({**won, "score": 0.1, "won": True}, {**won, "score": 9.0, "won": False}))
    assert data["success"]["count"] == 1
    assert data["success"]["rule"] == "the environment's own verdict (won)"
    partly = only(analysed({**won, "score": 0.1, "won": True}, {**won, "score": 9.0}))
    assert partly["success"]["rule"] == "reward 9, the highest seen"
    chosen = only(analysed({**won, "score": 0.1, "solved_it": True}, success=SuccessRule.parse("field:solved_it")))
    assert chosen["success"]["rate"] == 1.0


def test_rows_of_one_rollout_are_grouped_by_their_task() -> None:
    rows = [
        {
            "task_id": task,
            "reward": reward,
            "traj": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        }
        for task, reward in [(1, 1.0), (2, 0.0), (1, 1.0), (2, 1.0), (1, 0.0), (2, 0.0)]
    ]
    data = only(analysed(*rows))
    assert data["groups"] == data["tasks"]["count"] == 2
    assert data["pass_at_k"]["1"]["mean"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert data["group_stats"]["frac_reward_zero_std"] == 0.0
    assert data["retention"][0] | {"threshold": ""} == {
        "threshold": "", "kept": 3, "total": 6, "retention": 0.5, "groups_kept": 2, "groups": 2, "group_retention": 1.0,
    }  # fmt: skip


def native(ident: str, rollouts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    for i, rollout in enumerate(rollouts):
        rollout.setdefault("id", f"{ident}/{i}")
        rollout.setdefault("messages", [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])
    return {
        "group_id": ident,
        "env": "e",
        "task": {"id": ident, "prompt": []},
        "rollouts": rollouts,
        "model": "m",
        **more,
    }


def test_failures_have_a_denominator() -> None:
    failure = {"stage": "generate", "type": "ServerUnavailable", "message": "refused"}
    good = [native(str(i), [{"reward": 1.0}]) for i in range(22)]
    bad = [native(str(i), [{"reward": None, "failure": failure}]) for i in range(22, 40)]
    data = only(analysed(*good, *bad))
    assert data["rollouts"] == {"total": 40, "scored": 22, "failed": 18, "unscored": 0, "non_finite": 0}
    assert data["failures"] == {"generate:ServerUnavailable": 18}
    assert (data["success"]["count"], data["success"]["of"]) == (22, 22)
    assert data["success"]["failed_rollouts"] == "left out"
    counted = only(analysed(*good, *bad, count_failed=True))
    assert counted["success"]["rate"] == pytest.approx(22 / 40)
    assert counted["success"]["failed_rollouts"] == "count as no success"


def test_episodes_are_told_by_turn() -> None:
    rows = [
        native(f"p-{e}.{t}", [{"reward": float(t)}, {"reward": float(t) + 1}], episode_id=f"e{e}", turn=t)
        for e in range(3)
        for t in range(e + 1)
    ]
    data = only(analysed(*rows))
    assert data["episodes"]["count"] == 3
    assert data["episodes"]["turns"]["mean"] == 2
    assert data["episodes"]["reward_by_turn"]["1"] == {"count": 2, "mean": 1.5, "std": 0.0, "min": 1.5, "max": 1.5}
    assert data["episodes"]["reward"]["max"] == pytest.approx(0.5 + 1.5 + 2.5)
    assert data["success"]["rule"].startswith("none: the groups are turns of episodes")
    assert (data["success"]["of"], data["pass_at_k"], data["pass_hat_k"]) == (0, {}, {})


WON, LOST, SILENT = {"won": True}, {"won": False}, {}  # type: dict[str, Any], dict[str, Any], dict[str, Any]
BROKEN = None


@pytest.mark.parametrize(
    ("episodes", "count", "of", "at_1", "with_failed"),
    [
        ([("t", [[SILENT, SILENT], [WON, SILENT]])], 1, 1, 1.0, 1.0),
        ([("t", [[SILENT, SILENT], [SILENT, LOST]])], 0, 1, 0.0, 0.0),
        ([("t", [[WON], [SILENT]])], 1, 1, 1.0, 1.0),  # told before the last turn
        ([("t", [[WON], [LOST]])], 0, 1, 0.0, 0.0),  # the later verdict counts
        ([("t", [[SILENT], [WON, LOST]])], 0, 0, None, None),  # alternatives that differ speak of themselves
        ([("t", [[SILENT], [WON, WON]])], 1, 1, 1.0, 1.0),
        ([("t", [[SILENT], [BROKEN, BROKEN]])], 0, 0, None, 0.0),
        ([("t", [[LOST, SILENT], [BROKEN, BROKEN]])], 0, 0, None, 0.0),
        ([("t", [[SILENT], [BROKEN, WON]])], 1, 1, 1.0, 1.0),
        ([("t", [[WON]]), ("t", [[LOST]]), ("t", [[LOST]]), ("t", [[BROKEN]])], 1, 3, 1 / 3, 1 / 4),
        ([("t", [[WON]]), ("u", [[SILENT], [LOST]]), ("v", [[SILENT]])], 1, 2, 0.5, 0.5),
        ([("задача", [[{"success": True}]]), ("课题", [[{"solved": False}]])], 1, 2, 0.5, 0.5),
        ([("t", [[{"won": 1}]])], 0, 0, None, None),  # a number may count something
    ],
)
def test_success_of_turn_groups_belongs_to_the_episode(
    episodes: Any, count: int, of: int, at_1: float | None, with_failed: float | None
) -> None:
    failure = {"stage": "generate", "type": "X", "message": ""}
    rows = []
    for number, (task, turns) in enumerate(episodes):
        for turn, infos in enumerate(turns):
            rollouts: list[dict[str, Any]] = [
                {"failure": failure} if info is None else {"reward": 1.0 + turn, "info": info} for info in infos
            ]
            row = native(f"p-{number}.{turn}", rollouts, episode_id=f"e{number}", turn=turn)
            rows.append({**row, "task": {"id": task, "prompt": []}})
    data, counted = only(analysed(*rows)), only(analysed(*rows, count_failed=True))
    assert (data["success"]["count"], data["success"]["of"]) == (count, of)
    assert (data["pass_at_k"].get("1") or {}).get("mean") == (None if at_1 is None else pytest.approx(at_1))
    assert (counted["pass_at_k"].get("1") or {}).get("mean") == (
        None if with_failed is None else pytest.approx(with_failed)
    )
    assert data["tasks"]["count"] == len({task for task, _ in episodes})


def test_replies_that_look_wrong_are_counted() -> None:
    def rollout(text: str | None, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text, **more}]
        return {"messages": messages, "reward": 0.0}

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    data = only(analysed(native("a", [
        rollout(""), rollout(None), rollout(None, tool_calls=[call]), rollout('<tool_call>{"name": "f"}</tool_call>'),
        rollout("<think>never ends"), rollout("fine"),
    ])))  # fmt: skip
    assert data["replies"] == {"empty": 2, "tool_call_in_text": 1, "unclosed_thinking": 1}


def test_odd_values_of_strangers_do_not_stop_it() -> None:
    rows = [
        native("a", [{"reward": 1.0, "stop_reason": ["x"], "metrics": {"m": "high", "n": 2}, "rewards": {"r": None}}]),
        native("b", [{"reward": None, "failure": {}}], turn=["x"], episode_id=7, model=3),
        native("c", [{"reward": 2.0, "messages": [{"role": "assistant", "content": ["text", 3, None]}]}]),
    ]
    data = only(analysed(*rows))
    assert data["rollouts"]["total"] == 3
    assert list(data["metrics"]) == ["n"]
    assert (data["metrics"]["n"]["count"], data["metrics"]["n"]["mean"]) == (1, 2.0)
    assert data["metrics"]["n"]["quantiles"]["0.5"] == 2.0
    json.dumps(data, allow_nan=False)


def test_names_without_end_are_bounded() -> None:
    rows = [native(str(i), [{"reward": 1.0, "rewards": {f"r{i}": 1.0}, "metrics": {f"m{i}": 1.0}}]) for i in range(500)]
    data = only(analysed(*rows))
    assert len(data["rewards"]) == len(data["metrics"]) == 200
    report = analysed(*(group("x", [1], env=f"env {i}") for i in range(300)))
    assert len(report["environments"]) == 200
    assert any("100 rollouts" in note for note in report["notes"])


@pytest.mark.parametrize("text", ["", "0.5", ">", ">=nan", ">=inf", ">=1;2", "field:", "best", "<1"])
def test_a_rule_that_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        SuccessRule.parse(text)


def test_histogram_counts_everything_once() -> None:
    values = [math.sin(i) for i in range(1000)]
    bars = histogram(values)
    assert sum(height for _, _, height in bars) == 1000
    assert [height for _, _, height in histogram([0.0, 1.0, 1.0])] == [1.0, 2.0]
    assert histogram([]) == ()
    assert sum(height for _, _, height in histogram([5.0] * 3)) == 3


def test_ticks_are_round_and_inside() -> None:
    assert nice_ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(3, 3) == [3]
    assert all(-7 <= tick <= 1234 for tick in nice_ticks(-7, 1234))


def test_every_chart_becomes_svg_without_markup_of_strangers() -> None:
    evil = '<script>alert(1)</script>"&'
    rows = [
        native(
            str(i),
            [
                {"reward": float((i + j) % 3), "stop_reason": evil * (1 + i % 2), "rewards": {evil: 1.0, "b": float(i)}}
                for j in range(4)
            ],
        )
        for i in range(20)
    ]
    said = {"messages": [{"role": "assistant", "content": "longer than the others"}], "reward": 1.0}
    rows.append(native("said", [said, {"reward": 0.0}]))
    turns = [native(f"t{i}", [{"reward": 0.1 * i} for _ in range(4)], turn=i, episode_id="e") for i in range(4)]
    with Analysis() as analysis:
        for row in (*rows, *({**turn, "env": "turns"} for turn in turns)):
            analysis.add(record(row))
        reports = analysis.report().environments.values()
    names = set()
    for chart in (chart for report in reports for chart in charts_of(report)):
        names.add(chart.name)
        text = svg(chart)
        assert text.startswith("<svg")
        assert "<script" not in text
        assert "nan" not in text
    assert {"reward", "pass-at-k", "stop-reasons", "reward-by-turn", "characters"} <= names
    assert "reward-1" in names  # "b"; the reward that is always 1.0 has nothing to show
    assert "reward-0" not in names


def test_what_differs_leads_and_what_never_does_is_one_line() -> None:
    def one(ident: str, rewards: list[float], **info: Any) -> dict[str, Any]:
        row = native(ident, [{"reward": reward, "metrics": {"bad": 0, "n": i}} for i, reward in enumerate(rewards)])
        row["task"]["info"] = {"seed": len(ident) + int(ident[1:]), "id": ident, **info}
        return row

    rows = [one(f"e{i}", [1.0, 1.0, float(i > 0)], level="easy", kind="a", twin=True) for i in range(4)]
    rows += [one(f"h{i + 4}", [0.0, 0.0, 0.0], level="hard", kind="ab"[i % 2], twin=False) for i in range(4)]
    data = only(analysed(*rows))
    level, kind = data["differences"]
    assert (level["by"], kind["by"]) == ("level", "kind")  # twin sorts as level does; id and seed sort nothing
    assert level["explained"] > kind["explained"] > 0
    easy, hard = level["parts"]
    assert (easy["value"], easy["groups"], easy["reward_mean"]) == ("easy", 4, pytest.approx(11 / 12))
    assert (easy["groups_with_spread"], easy["groups_compared"]) == (1, 4)
    assert (hard["groups_with_spread"], hard["reward_stderr"]) == (0, 0.0)
    assert easy["reward_stderr"] == pytest.approx(1 / 12)
    assert "metric bad 0" in told(data).constant
    assert [name for name, _ in told(data).varying] == ["reward", "metric n"]
    ci = data["reward"]["ci95_over_tasks"]
    assert ci["half"] == pytest.approx(1.96 * data["reward"]["stderr_over_tasks"])
    assert ci["tasks"] == 8


@pytest.mark.parametrize(("reward", "which"), [(0.0, "none"), (1.0, "all")])
def test_no_pass_at_k_where_nothing_or_everything_succeeded(reward: float, which: str) -> None:
    rows = [native(str(i), [{"reward": reward, "info": {"success": bool(reward)}} for _ in range(4)]) for i in range(3)]
    with Analysis() as analysis:
        for row in rows:
            analysis.add(record(row))
        (report,) = analysis.report().environments.values()
    assert [chart.name for chart in charts_of(report)] == []
    assert no_pass(report.as_json()).startswith(f"pass@k: {which} of 12 rollouts succeeded")


def test_rewards_at_the_limits_of_floats_make_no_nonsense() -> None:
    rows = [group(str(i), [1e308, -1e308, 1e-320]) for i in range(20)]
    data = only(analysed(*rows))
    json.dumps(data, allow_nan=False)
    assert data["reward"]["max"] == 1e308
    assert (data["reward"]["mean"], data["reward"]["std"]) == (None, None)
