"""Charts as PNG files, drawn by matplotlib (an optional extra)."""

from __future__ import annotations

import io
import warnings
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.analysis import Chart

_BLUE, _ORANGE = "#3b6ea8", "#c26a2d"


def require_matplotlib() -> None:
    """Raise ConfigError with the command to install it, before long work begins."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError("--png needs matplotlib", hint="pip install 'atropos-view[plots]'") from error


def png(chart: Chart, heading: str) -> bytes:
    """The chart as a PNG of 960 x 600 pixels. Texts are drawn as they are, without TeX."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"text.parse_math": False, "font.size": 10}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that the font lacks are drawn as boxes
        figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _draw(axes, chart)
        figure.suptitle(_plain(heading), fontsize=9, color="#666666")
        axes.set_title(_plain(chart.title + (f"\n({chart.note})" if chart.note else "")), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw(axes: Any, chart: Chart) -> None:
    if chart.categories:
        names = [_plain(name[:40]) for name, _ in reversed(chart.categories)]
        axes.barh(range(len(names)), [value for _, value in reversed(chart.categories)], color=_BLUE)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel(chart.y_label)
        return
    for low, high, height in chart.bars:
        axes.bar((low + high) / 2, height, width=(high - low) * 0.95, color=_BLUE)
    for line, color in zip(chart.lines, (_BLUE, _ORANGE, "#4d8a57", "#8a4d86"), strict=False):
        axes.errorbar(
            line.xs, line.ys, yerr=line.errors, label=_plain(line.label), color=color, marker="o", markersize=4
        )
    if chart.lines:
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))
        axes.legend(frameon=False)
    if chart.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(chart.lines[0].xs, [f"{x:g}" for x in chart.lines[0].xs])
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


def _plain(text: str) -> str:
    """Without control characters, which fonts cannot draw."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
