"""The page of `atropos view` in a real browser: what a person does with it, and what a hostile run cannot do.

Needs selenium and Debian's chromium and chromium-driver; skipped without them.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_view.page.export import export
from atropos_view.page.library import Library
from atropos_view.page.runs import Run
from atropos_view.page.server import ViewServer

from atropos_cli.io.sources import find_sources

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium and chromium-driver are not installed"),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1400,900"
)


class Browser:
    """A page in headless chromium, with the few things tests do to it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(url)
        self.until(lambda: self.run("return document.documentElement.dataset.ready") == "1")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.driver, 60, poll_frequency=0.05).until(lambda _: condition())

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map(x => x.textContent)", selector))

    def keys(self, text: str) -> None:
        self.all("body")[0].send_keys(text)

    def type(self, selector: str, text: str) -> None:
        (field,) = self.all(selector)
        field.clear()
        field.send_keys(text)

    def choose(self, field: str, value: str) -> None:
        """Take an option of a select, as a person does."""
        self.all(f'#{field} option[value="{value}"]')[0].click()

    @property
    def status(self) -> str:
        return str(self.texts("#status")[0])

    @property
    def heading(self) -> str:
        return " | ".join(self.texts("#main h2"))

    def complaints(self) -> list[str]:
        """What the browser wrote to its console: errors of scripts, refusals of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser") if "favicon" not in entry["message"]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.set_capability("unhandledPromptBehavior", "ignore")
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


@pytest.fixture
def browser(driver: Any) -> Browser:
    driver.get("about:blank")
    driver.get_log("browser")
    return Browser(driver)


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(path, ...) -> the address of a page for these runs."""
    started: list[ViewServer] = []

    def make(*paths: Path, decode: Any = None) -> str:
        server = ViewServer(Library([Run(path.name, find_sources([str(path)])) for path in paths], decode))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        if server.library.diff is not None:
            server.library.diff.start()
        started.append(server)
        return server.url

    yield make
    for server in started:
        server.shutdown()
        server.server_close()
        server.library.close()


@pytest.fixture(params=["served", "exported"])
def show(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Serve:
    """The same page from a server and from a file."""

    def make(*paths: Path, decode: Any = None) -> str:
        if request.param == "served":
            return serve(*paths, decode=decode)
        library = Library([Run(path.name, find_sources([str(path)])) for path in paths], decode)
        page = tmp_path / "page.html"
        export(library, page)
        library.close()
        return page.as_uri()

    return make


def rollout(text: str, reward: float | None = 1.0, **more: Any) -> dict[str, Any]:
    ids = list(range(10, 10 + len(text.split())))
    messages = [
        {"role": "user", "content": "How much?", "tokens": {"ids": [1, 2, 3], "mask": False}},
        {
            "role": "assistant",
            "content": text,
            "tokens": {"ids": ids, "mask": True, "logprobs": [-0.5 * i for i in range(len(ids))]},
        },
    ]
    return {"messages": messages, "reward": reward, "stop_reason": "done", "rewards": {"exact": reward or 0.0}, **more}


def native(ident: str, *rollouts: dict[str, Any], env: str = "sums") -> dict[str, Any]:
    for i, one in enumerate(rollouts):
        one["id"] = f"{ident}/{i}"
    task = {"id": ident, "prompt": [{"role": "user", "content": "How much?"}]}
    return {"group_id": f"g-{ident}", "env": env, "task": task, "rollouts": rollouts, "model": "m"}


FAILURE = {"stage": "generate", "type": "ServerUnavailable", "message": "refused the connection"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        native("one", rollout("the answer is four", 1.0), rollout("I think five", 0.0)),
        native("two", rollout("a zebra", 0.25, stop_reason="length"), rollout("", None, failure=FAILURE)),
        native("three", *(rollout(f"try {i}", i / 10) for i in range(11)), env="games"),
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_first_page(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run))
    assert browser.texts("#title") == ["run.jsonl"]
    assert browser.texts("#about") == ["3 groups · sums · m"]
    assert [text.startswith(str(i + 1)) for i, text in enumerate(browser.texts("#list a"))] == [True] * 3
    assert browser.heading == "Task one"
    assert browser.texts(".rollout .score strong") == ["1", "0"]
    assert "the answer is four" in browser.texts(".rollout pre")
    left, right = browser.all(".rollout")
    assert left.rect["y"] == right.rect["y"], "rollouts stand side by side"
    assert left.rect["x"] + left.rect["width"] <= right.rect["x"]
    assert browser.complaints() == []


def test_rewards_have_colours(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run) + "#group=3")
    colours = browser.run(
        "return [...document.querySelectorAll('.rollout .square')].map(x => getComputedStyle(x).backgroundColor)"
    )
    assert len(set(colours)) == 11


def test_keys(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run))
    browser.keys("j")
    browser.until(lambda: browser.heading == "Task two")
    assert browser.run("return location.hash") == "#group=2"
    browser.keys("jjj")
    browser.until(lambda: browser.heading == "Task three")
    browser.keys("ll")
    assert browser.run("return document.activeElement.dataset.index") == "1"
    assert browser.run("return location.hash") == "#group=3&rollout=1"
    browser.keys("h")
    assert browser.run("return document.activeElement.dataset.index") == "0"
    browser.keys("k")
    browser.until(lambda: browser.heading == "Task two")
    browser.keys("p")
    assert browser.run("return document.querySelector('details.prompt').open") is False
    browser.keys("?")
    assert browser.run("return document.getElementById('help').open") is True


def test_filters_and_search(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run))
    browser.keys("/")
    assert browser.run("return document.activeElement.id") == "q"
    browser.type("#q", "ZEBRA")
    browser.until(lambda: browser.status == "1 group found")
    browser.all("#list a")[0].click()
    browser.until(lambda: browser.texts("mark") == ["zebra"])
    assert "q=ZEBRA" in browser.run("return location.hash")
    browser.all("#clear")[0].click()
    browser.until(lambda: len(browser.all("#list a")) == 3)
    for selector, text, wanted in (
        ("#env", "games", 1),
        ("#stop", "length", 1),
        ("#low", "0.9", 2),
        ("#high", "0.2", 2),
    ):
        browser.type(selector, text)
        browser.until(lambda wanted=wanted: browser.status == f"{wanted} group{'s' if wanted > 1 else ''} found")
        browser.all("#clear")[0].click()
        browser.until(lambda: browser.status == "3 groups")
    for field, value, wanted in (
        ("state", "failed", ["two"]), ("state", "cut", ["two"]), ("groups", "equal", []),
        ("groups", "spread", ["one", "three"]), ("groups", "failures", ["two"]),
    ):  # fmt: skip
        browser.choose(field, value)
        browser.until(lambda wanted=wanted: browser.texts("#list .task") == wanted)
        browser.all("#clear")[0].click()
        browser.until(lambda: len(browser.all("#list a")) == 3)
    browser.choose("state", "failed")
    browser.until(lambda: "1 failed" in browser.texts("#list a")[0])


def test_sorting(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run))
    for sort, wanted in (
        ("reward", ["one", "three", "two"]), ("spread", ["one", "three", "two"]),
        ("id", ["one", "three", "two"]), ("length", ["one", "two", "three"]), ("order", ["one", "two", "three"]),
    ):  # fmt: skip
        browser.choose("sort", sort)
        browser.until(lambda wanted=wanted: browser.texts("#list .task") == wanted)
    browser.choose("sort", "id")
    browser.all("#reverse")[0].click()
    assert browser.texts("#list .task") == ["two", "three", "one"]
    assert "sort=id" in browser.run("return location.hash")
    assert "reverse=1" in browser.run("return location.hash")


def test_the_histogram_filters(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run))
    counts = [bar.get_attribute("title") for bar in browser.all("#histogram button")]
    assert counts[0] == "0: 2 rollouts"
    assert "0.25: 1 rollout" in counts
    browser.all('#histogram button[title^="0.25:"]')[0].click()
    browser.until(lambda: browser.texts("#list .task") == ["two"])
    browser.all('#histogram button[aria-pressed="true"]')[0].click()
    browser.until(lambda: browser.status == "3 groups")


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_parts_are_drawn_as_what_they_are(browser: Browser, show: Serve, tmp_path: Path) -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "look", "arguments": '{"at": {"x": 1}, "code": "a\\nb"}'},
    }
    images = ["data:image/png;base64," + PIXEL, "https://example.org/x.png", "data:image/svg+xml;base64,PHN2Zz4="]
    reply = (
        '<think>why</think><memory>a key</memory>\nGo.<tool_call>{"name": "go", "arguments": {"to": "n"}}</tool_call>'
    )
    messages = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}} for url in images]},
        {"role": "assistant", "content": None, "reasoning": "long " * 300, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": '{"seen": ["door"]}'},
        {"role": "assistant", "content": reply},
    ]
    one = rollout("x", 1.0, metrics={"none": 0, "some": 2})
    one["messages"] = messages
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(native("one", one, rollout("y", 0.0))) + "\n")
    browser.open(show(path))
    first = ".rollout[data-index='0'] "
    assert browser.texts(first + ".part .kind") == ["thinking", "call", "thinking", "memory", "call"]
    assert browser.run("return document.querySelector(arguments[0]).open", first + ".part.thinking") is False
    assert browser.texts(first + ".part.call .name") == ["look", "go"]
    assert browser.texts(first + ".arguments dd") == ['{\n  "x": 1\n}', "a\nb", "n"]
    assert '{\n  "seen": [' in browser.texts(first + ".message.tool pre")[0]
    assert browser.texts(first + ".message.tool h3 .name") == ["look"]
    assert "<" not in "".join(browser.texts(first + ".body"))
    assert browser.texts(first + ".chips li")[:3] == ["done", "exact1", "some2"]
    browser.until(lambda: browser.run("return document.querySelector('figure img').naturalWidth") == 1)
    assert len(browser.all("#shown img")) == 1
    assert browser.all("#shown a")[0].get_attribute("href") == "https://example.org/x.png"
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_scrolls_sideways(browser: Browser, serve: Serve, run: Path, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open(serve(run) + "#group=3")
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run("const m = document.getElementById('main'); return m.scrollWidth <= m.clientWidth")
        tops = [card.rect["y"] for card in browser.all(".rollout")]
        assert (len(tops), len(set(tops))) == (11, 11 if width == 390 else 6)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_long_list_is_drawn_where_it_is_looked_at(browser: Browser, show: Serve, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        "".join(json.dumps(native(f"t{i}", rollout(f"reply number{i}x", i / 3000))) + "\n" for i in range(3000))
    )
    browser.open(show(path))
    browser.until(lambda: browser.status == "3,000 groups")
    assert len(browser.all("#list a")) < 100
    browser.run("document.getElementById('scroller').scrollTop = 1e9")
    browser.until(lambda: browser.texts("#list .task")[-1] == "t2999")
    browser.type("#q", "number2345x")
    browser.until(lambda: browser.status == "1 group found")
    browser.all("#list a")[0].click()
    browser.until(lambda: browser.heading == "Task t2345")


def test_a_deep_link(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run) + "#group=2&rollout=1&q=zebra")
    assert browser.heading == "Task two"
    assert browser.run("return document.activeElement.dataset.index") == "1"
    assert browser.run("return document.getElementById('q').value") == "zebra"
    assert browser.texts(".rollout .problem") == ["generate: ServerUnavailablerefused the connection"]
    browser.run("location.hash = '#group=3'")
    browser.until(lambda: browser.heading == "Task three")
    assert len(browser.all("#list a")) == 3
    browser.open(show(run) + "#group=99")
    assert browser.all("#main .problem")


def test_tokens_and_masks(browser: Browser, show: Serve, run: Path) -> None:
    browser.open(show(run))
    browser.keys("t")
    browser.until(lambda: len(browser.all(".ids")) == 2)
    assert browser.texts(".ids .untrained .token")[:3] == ["1", "2", "3"]
    assert browser.texts(".ids .trained .token")[:4] == ["10", "11", "12", "13"]
    title = browser.all(".ids .trained .token")[1].get_attribute("title")
    assert title == "position 4, id 11, trained, logprob -0.5, probability 0.6065"
    trained, untrained = (
        browser.run("return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", f".ids .{kind}")
        for kind in ("trained", "untrained")
    )
    assert trained != untrained
    assert not browser.all(".rollout .body")[0].is_displayed()
    browser.all(".toggle")[0].click()
    assert browser.all(".rollout .body")[0].is_displayed()


def test_tokens_as_text(browser: Browser, show: Serve, run: Path) -> None:
    words = {1: "How", 2: " much", 3: "?\n", 10: "the", 11: " <b>answer</b>", 12: " is", 13: " four"}
    browser.open(show(run, decode=lambda ids: "".join(words.get(i, "?") for i in ids)))
    browser.all(".toggle")[0].click()
    browser.until(lambda: browser.all(".ids .token"))
    assert browser.texts(".ids .token") == ["How", " much", "?⏎", "the", " <b>answer</b>", " is", " four"]
    assert not browser.all(".ids b")


def test_two_runs(browser: Browser, show: Serve, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    rows = [native("two", rollout("better now", 1.0)), native("one", rollout("worse now", 0.25))]
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    browser.open(show(run, other))
    browser.until(lambda: "2 tasks in both" in browser.status)
    assert "1 better, 1 worse" in browser.status
    assert browser.texts("#list .delta") == ["−0.25", "+0.75"]
    assert browser.texts("#title") == ["run.jsonl compared with other.jsonl"]
    assert browser.texts(".compared thead th") == ["run.jsonl", "other.jsonl"]
    assert "rollouts14 with a reward, 1 failed2 with a reward" in browser.texts(".compared tbody tr")
    assert browser.heading == "run.jsonl Task one | other.jsonl Task one"
    assert "worse now" in browser.texts(".rollout pre")
    browser.all('[data-sort="better"]')[0].click()
    browser.until(lambda: browser.texts("#list .delta") == ["+0.75", "−0.25"])
    browser.keys("k")
    browser.until(lambda: browser.heading == "run.jsonl Task two | other.jsonl Task two")
    browser.all("#tab-groups")[0].click()
    browser.until(lambda: browser.status == "3 groups")
    assert browser.complaints() == []


def test_long_texts(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(native("one", rollout("word " * 20_000))) + "\n")
    browser.open(serve(path))
    assert len(browser.texts(".rollout pre")[0]) == 20_000
    (button,) = [button for button in browser.all(".rollout button") if button.text == "Show all"]
    button.click()
    browser.until(lambda: len(browser.texts(".rollout pre")[0]) == 100_000)


def test_a_run_that_grows(browser: Browser, serve: Serve, run: Path) -> None:
    browser.open(serve(run))
    with run.open("a") as file:
        file.write(json.dumps(native("four", rollout("late"))) + "\n")
    browser.until(lambda: browser.texts("#about") == ["4 groups · sums · m"])
    browser.until(lambda: len(browser.all("#list a")) == 4)


EVIL = [
    "<script>window.pwned = 1</script>",
    '<img src=x onerror="window.pwned = 1">',
    "</script><script>window.pwned = 1</script>",
    "</pre></bdi></title></style><svg onload=window.pwned=1>",
    "<!--<script>",
    "javascript:window.pwned=1",
    "${window.pwned=1}{{constructor.constructor('window.pwned=1')()}}",
    "\u202etxt.exe\u202c \u2066x\u2069 \u200b\ufeff\u0000\u001b[31m",
    "\ud83d",
    "a" * 30_000,
    "\u0301" * 3_000,
    '" onmouseover="window.pwned=1" x="',
    "' onfocus='window.pwned=1' autofocus '",
    "&lt;b&gt;&#x3C;script&#x3E;",
]


STRANGE = "script, img, svg, iframe, style, b, [onerror], [onload], [onmouseover], [autofocus]"


def hostile(folder: Path) -> Path:
    """A run that has markup in every place a text can stand."""
    rows = []
    for i, evil in enumerate(EVIL):
        call = {"id": evil, "type": "function", "function": {"name": evil, "arguments": evil}}
        one = rollout(evil, 0.5, stop_reason=evil, rewards={evil: 0.5}, metrics={evil: 1.0})
        one["messages"] += [
            {"role": "assistant", "content": None, "reasoning": evil, "tool_calls": [call]},
            {"role": "tool", "content": evil, "name": evil, "tool_call_id": evil},
            {"role": "user", "content": [{"type": evil}, {"type": "text", "text": evil}]},
        ]
        failed = rollout(evil, None, failure={"stage": evil, "type": evil, "message": evil})
        row = native(f"{i} {evil}", one, failed, env=evil)
        row["task"].update(answer=evil, info={evil: evil}, prompt=[{"role": "system", "content": evil}])
        row.update(model=evil, episode_id=evil, group_id=evil)
        rows.append(json.dumps(row))
    rows.append('{"broken": "' + EVIL[0])
    path = folder / "<img src=x onerror=window.pwned=1>.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_hostile_run_executes_nothing(browser: Browser, show: Serve, tmp_path: Path) -> None:
    path = hostile(tmp_path)
    words = [*EVIL, "x"]
    url = show(path, decode=lambda ids: words[ids[-1] % len(words)])
    browser.open(url)
    browser.keys("t")
    for number in range(1, len(EVIL) + 2):
        browser.run(f"location.hash = '#group={number}'")
        start = f"Task {number - 1} " if number <= len(EVIL) else "Not readable"
        browser.until(lambda start=start: browser.heading.startswith(start))
        browser.run(
            "for (const x of document.querySelectorAll('#main *')) { x.dispatchEvent(new MouseEvent('mouseover')); }"
        )
        if number <= len(EVIL) and len(EVIL[number - 1]) < 1_000 and "\u202e" not in EVIL[number - 1] and number != 9:
            assert EVIL[number - 1] in " ".join(browser.texts("#main pre")), "the text itself is shown"
    assert browser.run("return window.pwned") is None
    assert browser.run("return document.querySelector('#columns').querySelectorAll(arguments[0]).length", STRANGE) == 0
    assert browser.run("return document.title").startswith("<img src=x")
    assert browser.complaints() == []


def test_marks_that_turn_or_hide_text_are_shown_by_their_codes(browser: Browser, show: Serve, tmp_path: Path) -> None:
    browser.open(show(hostile(tmp_path)) + "#group=8")
    shown = browser.texts(".rollout pre .odd")
    assert {"U+202E", "U+202C", "U+2066", "U+200B", "U+FEFF", "U+0000", "U+001B"} <= set(shown)
    assert "\u202e" not in browser.run(
        "return document.body.textContent.replace(document.getElementById('data')?.textContent, '')"
    )
    isolated = browser.run("return getComputedStyle(document.querySelector('.rollout pre .text')).unicodeBidi")
    assert isolated == "isolate"


def test_the_policy_stops_what_would_slip_through(browser: Browser, show: Serve, run: Path) -> None:
    """Even if markup came in, the page's policy would not let it run or load anything."""
    browser.open(show(run))
    markup = (
        '<img src=x onerror="window.pwned=1"><style>body{display:none}</style>'
        '<a id=probe href="javascript:window.pwned=1">x</a>'
    )
    browser.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", markup)
    browser.run("document.getElementById('probe').click()")
    browser.run("const s = document.createElement('script'); s.textContent = 'window.pwned=1'; document.body.append(s)")
    assert browser.run("return window.pwned") is None
    assert browser.all("body")[0].is_displayed()
    assert len([text for text in browser.complaints() if "Content Security Policy" in text]) >= 3


def test_nothing_is_loaded_from_elsewhere(browser: Browser, show: Serve, run: Path) -> None:
    url = show(run)
    browser.open(url)
    names = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith(url) for name in names)
    if url.startswith("file:"):
        assert names == []


def test_a_list_of_runs_is_live(browser: Browser, run: Path, tmp_path: Path) -> None:
    from atropos_view.page.index import RunIndex

    root = tmp_path / "runs"

    def begin(name: str, state: str, done: int, **plan: Any) -> Path:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(json.dumps({"environment": {"name": "sums", "config": plan}, "model": "m"}))
        (folder / "groups.jsonl").write_text(run.read_text())
        told = {"state": state, "groups_done": done, "groups_total": 3, "reward_mean": done / 10}
        (folder / "summary.json").write_text(json.dumps(told))
        return folder

    begin("a", "finished", 3, level="<script>document.title='bad'</script>")
    (root / "c").mkdir()
    (root / "c" / "train.json").write_text('{"state": "finished", "method": "grpo"}')
    rows = [{"step": step, "kind": "train", "reward": step / 2} for step in (1, 2)]
    (root / "c" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    going = begin("b", "running", 1, level="easy")
    (going / "lock").touch()
    holder = (going / "lock").open("rb")
    fcntl.flock(holder, fcntl.LOCK_EX)
    index = RunIndex([root], lambda folder: Library([Run(folder.name, find_sources([str(folder)]))]))
    server = ViewServer(index)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        browser.open(server.url)
        assert browser.texts("#about") == ["3 runs, 1 running"]
        cells = {
            tuple(browser.texts(f"#rows tr:nth-child({i}) td.{name}")[0] for name in ("state", "progress"))
            for i in (1, 2, 3)
        }
        assert cells == {("running", "1/3 groups"), ("finished", "3/3 groups"), ("finished", "2 steps")}
        begin("b", "running", 2, level="easy")
        browser.until(lambda: "2/3 groups" in browser.texts("td.progress"))
        holder.close()
        begin("d", "finished", 3, level="late")
        browser.until(lambda: browser.texts("#about") == ["4 runs"])
        assert sorted(browser.texts("td.state")) == ["finished", "finished", "finished", "interrupted"]
        browser.type("#q", "level=late")
        browser.until(lambda: len(browser.all("#rows tr")) == 1)
        browser.all("td.what a")[0].click()
        browser.until(lambda: browser.texts("#about") == ["3 groups · sums · m"])
        browser.all("#back")[0].click()
        browser.until(lambda: len(browser.all("#rows tr")) == 4)
        browser.all("a.curves")[0].click()
        browser.until(lambda: browser.all("svg"))
        assert browser.complaints() == []
    finally:
        holder.close()
        server.shutdown()
        server.server_close()
        index.close()
