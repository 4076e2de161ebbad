"""Learning curves and the summary of a run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from atropos_cli.errors import DataError
from atropos_cli.io.git import git_commit
from atropos_cli.training.curves import charts_of, draw_curves, drawn
from atropos_cli.training.metrics import MetricsLog, read_metrics
from atropos_cli.training.summary import summary

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / f"run{EVIL.replace('/', '')}"
    folder.mkdir()
    log = MetricsLog(folder)
    for step in range(41):
        if step:
            loss = float("nan") if step == 3 else 1 / step
            log.write(step, {"loss": loss, "reward": step / 40, EVIL: 1.0, "epoch": 0.1})
        if step % 10 == 0:
            value = 0.2 + (0.5 if step == 20 else step / 100)
            values = {"accuracy": value, "accuracy_low": value - 0.1, "accuracy_high": value + 0.1, "errors": 0.0}
            log.evaluation(step, {f"eval/sums/{name}": number for name, number in values.items()})
    log.close()
    for name in ("step-40", "step-9", "step-x", "other"):
        (folder / "checkpoints" / name).mkdir(parents=True)
    return folder


def test_the_page_is_whole_escaped_and_loads_nothing(run: Path) -> None:
    written = draw_curves(run)
    text = (run / "curves.html").read_text()
    assert written[0] == run / "curves.html"
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    body = ElementTree.fromstring(text[text.index("<body>") : text.index("</html>")])  # well-formed
    titles = [(caption.text or "").strip() for caption in body.iter("figcaption")]
    assert titles == ["Evaluation: accuracy on sums", "reward", "loss"]
    (constant,) = [item for item in body.iter("li") if "constant:" in "".join(item.itertext())]
    assert "".join(constant.itertext()) == f"constant: sums/errors 0, {EVIL} 1"
    assert "epoch" not in text
    assert "1 step without a finite value" in text
    (loss,) = [figure for figure in body.iter("figure") if "loss" in (figure[0].text or "")]
    assert len(list(loss.iter("polyline"))) == 2  # broken where there was no value
    assert "0.2 → 0.6" in text
    assert "highest 0.7 at step 20" in text


def test_the_picture_holds_all_charts(run: Path) -> None:
    assert draw_curves(run)[1:] == [run / "curves.svg"]
    picture = ElementTree.fromstring((run / "curves.svg").read_text())
    texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == run.name
    for title in ("Evaluation: accuracy on sums", "reward", "loss (1 step without a finite value)"):
        assert title in texts
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))) == 4


def test_curves_need_no_heavy_library(run: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from atropos_cli.training import curves\n"
        "assert len(curves.draw_curves(Path(sys.argv[1]))) == 2\n"
        "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, run], check=True, timeout=60)


def test_intervals_and_means(run: Path) -> None:
    charts = {chart.name: chart for chart in charts_of(read_metrics(run))}
    (line,) = charts["eval-accuracy"].lines
    assert line.xs == (0, 10, 20, 30, 40)
    assert line.errors == pytest.approx((0.1,) * 5)
    long = [(step, {"loss": float(step % 2)}) for step in range(1, 10_001)]
    (chart,) = charts_of(long)
    assert len(chart.lines[0].xs) == 150
    assert all(0.4 < y < 0.6 for y in chart.lines[0].ys)


def test_many_suites_with_long_names_one_step_and_twins(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    suites = [f"suite-{i}-{'long-name-' * 12}" for i in range(10)]
    for step in (0, 5):
        log.evaluation(step, {f"eval/{suite}/accuracy": (i + step) / 20 for i, suite in enumerate(suites)})
    log.write(5, {"reward": 0.5, "nothing": float("nan")})
    log.close()
    rows = read_metrics(tmp_path)
    charts, remarks = drawn(rows)
    assert [len(chart.lines) for chart in charts] == [8, 2]
    assert remarks == {"one value": ["reward 0.5 (step 5)"], "no finite value": ["nothing"]}
    draw_curves(tmp_path)
    text = (tmp_path / "curves.html").read_text()
    body = ElementTree.fromstring(text[text.index("<body>") : text.index("</html>")])
    names = [item for item in body.iter("li") if (bdi := item.find("bdi")) is not None and bdi.text in suites]
    assert len(names) == 10  # below the pictures, where their length does no harm
    assert not any("suite" in (mark.text or "") for mark in body.iter("text"))
    both = [(step, {"reward": step / 10, "rewards/env/mean": step / 10}) for step in range(4)]
    charts, remarks = drawn(both)
    assert ([chart.name for chart in charts], remarks) == (["reward"], {"the same": ["rewards/env/mean = reward"]})


def test_a_run_without_steps(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no metrics"):
        draw_curves(tmp_path)


def test_summary(run: Path) -> None:
    found = summary(run)
    assert found["steps"] == 40
    assert found["checkpoints"] == ["step-9", "step-40"]
    assert found["curves"]["eval/sums/accuracy"] == pytest.approx(
        {"first": 0.2, "first_step": 0, "last": 0.6, "last_step": 40, "best": 0.7, "best_step": 20}
    )
    assert found["curves"]["eval/sums/errors"]["best"] is None
    assert found["curves"]["reward"]["best_step"] == 40


def test_git_commit(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        config = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        done = subprocess.run(["git", "-C", str(tmp_path), *config, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert git_commit(tmp_path) is None
    git("init", "-q")
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("commit", "-qm", "x")
    commit = git("rev-parse", "HEAD")
    assert git_commit(tmp_path) == commit
    (tmp_path / "f").write_text("2")
    assert git_commit(tmp_path) == f"{commit}+"


def test_numbers_that_are_none_or_tiny_or_huge(tmp_path: Path) -> None:
    fields = ('"reward": -{}e-7', '"nan": NaN', '"kl": 1e{}', '"long": 1' + "0" * 400)
    lines = [
        f'{{"step": {step}, "kind": "train", {", ".join(fields).format(step, step + 10)}}}\n'
        for step in range(100, 120)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    draw_curves(tmp_path)
    text = (tmp_path / "curves.html").read_text()
    assert "-1e-05 → -1.19e-05" in text
    assert "no finite value:</b> nan, long" in text
    assert not re.search(r">-0<|nan →|e\+\d+G<", text)
    # A minus that does not fit beside the axis would be cut off.
    labels = re.findall(r'text-anchor="end"([^>]*)>(-1.05e-05)<', text)
    assert [("textLength" in fit, label) for fit, label in labels] == [(True, "-1.05e-05")]
