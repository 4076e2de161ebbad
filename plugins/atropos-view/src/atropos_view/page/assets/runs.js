// The list of runs: fetched again while it is looked at, drawn anew when it changed.
"use strict";

const get = (id) => document.getElementById(id);
const SOON = 2000, LATER = 5000;
const COLUMNS = [
  ["when", "Started", (run) => run.started || ""],
  ["kind", "Kind", (run) => run.kind],
  ["what", "Run", (run) => run.what.toLowerCase()],
  ["model", "Model", (run) => run.model.toLowerCase()],
  ["progress", "Done", (run) => (run.total ? run.done / run.total : run.done || 0)],
  ["result", "Result", (run) => run.accuracy ?? run.reward ?? Number.NEGATIVE_INFINITY],
  ["state", "State", (run) => run.state],
];
const state = { runs: [], tag: null, sort: "when", down: true, chosen: new Set(), drawnAt: 0 };

async function load() {
  const headers = state.tag ? { "If-None-Match": state.tag } : {};
  let answer;
  try {
    answer = await fetch("api/runs", { headers, cache: "no-store" });
  } catch (error) {
    throw new Error("the server does not answer; is atropos view still running?");
  }
  if (answer.status === 304) {
    if (Date.now() - state.drawnAt > 30000) draw(); // "2 min ago" moves on
    return;
  }
  if (!answer.ok) throw new Error("status " + answer.status);
  const data = await answer.json();
  state.tag = answer.headers.get("ETag");
  state.runs = data.runs;
  get("title").replaceChildren(line(data.name));
  get("notes").replaceChildren(...data.notes.map((note) => element("li", null, line(note))));
  drawStates();
  draw();
}

function drawStates() {
  const counts = new Map();
  for (const run of state.runs) counts.set(run.state, (counts.get(run.state) || 0) + 1);
  for (const name of state.chosen) if (!counts.has(name)) counts.set(name, 0);
  const buttons = [...counts].map(([name, count]) =>
    element("button", { type: "button", "data-state": name, "aria-pressed": String(state.chosen.has(name)) }, `${name} ${count}`));
  const asked = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.state : undefined;
  get("states").replaceChildren(...(counts.size > 1 || state.chosen.size ? buttons : []));
  if (asked) for (const button of buttons) if (button.dataset.state === asked) button.focus();
}

function wanted() {
  const words = get("q").value.toLowerCase().split(/\s+/).filter(Boolean);
  return state.runs.filter((run) => {
    if (state.chosen.size && !state.chosen.has(run.state)) return false;
    const text = [run.run, run.what, run.model, run.kind, run.state].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

function draw() {
  const by = COLUMNS.find(([name]) => name === state.sort)[2];
  const runs = wanted();
  runs.sort((a, b) => {
    const [x, y] = [by(a), by(b)];
    return (x < y ? -1 : x > y ? 1 : 0) * (state.down ? -1 : 1);
  });
  get("heads").replaceChildren(...COLUMNS.map(([name, title]) => {
    const order = name === state.sort ? (state.down ? "descending" : "ascending") : null;
    return element("th", { scope: "col", "aria-sort": order }, element("button", { type: "button", "data-column": name }, title));
  }));
  const focused = document.activeElement ? document.activeElement.closest("tr[data-key]") : null;
  const address = focused ? document.activeElement.getAttribute("href") : null;
  get("rows").replaceChildren(...runs.map(row));
  if (address) for (const link of get("rows").querySelectorAll("a")) if (link.getAttribute("href") === address) link.focus();
  state.drawnAt = Date.now();
  document.querySelector("table").hidden = !state.runs.length;
  const nothing = state.runs.length ? "No run fits." : "No runs here yet. What atropos gen, eval or train writes into this folder shows up by itself.";
  get("nothing").textContent = runs.length ? "" : nothing;
  get("nothing").hidden = runs.length > 0;
  const running = state.runs.filter((run) => run.state === "running").length;
  say(plural(state.runs.length, "run") + (running ? `, ${running} running` : ""));
}

function row(run) {
  const path = element("span.path", null, line(run.run));
  const curves = run.curves ? element("a.curves", { href: `run/${run.key}/curves` }, "curves") : null;
  const name = run.groups ? element("a", { href: `run/${run.key}/` }, line(run.what)) : line(run.what);
  const error = run.error ? element("span.problem", null, line(run.error)) : null;
  const broken = ["interrupted", "lost"].includes(run.state) && run.next;
  const cells = {
    when: [element("span", { title: run.started }, ago(run.started)), element("span.path", null, stamp(run.started))],
    kind: [run.kind],
    what: [name, curves ? " " : null, curves, path, error, broken ? element("span.path", null, "go on: ", element("code", null, line(run.next))) : null],
    model: [line(run.model || "–")],
    progress: [run.progress, bar(run)],
    result: [run.result === "-" ? "–" : run.result.replace("->", "→"), equal(run)],
    state: [element("span.badge." + run.state, null, run.state)],
  };
  return element("tr", { "data-key": run.key }, ...COLUMNS.map(([column]) =>
    element("td." + column, null, ...cells[column].filter((part) => part !== null && part !== undefined))));
}

function bar(run) {
  if (!run.total || run.done === null || run.state === "finished") return null;
  const inner = element("i");
  inner.style.width = `${Math.min(100, (100 * run.done) / run.total)}%`;
  return element("span.bar", null, inner);
}

// Groups of equal rewards teach nothing: worth knowing while there is time to stop.
function equal(run) {
  if (!run.equal || !run.done || run.kind !== "gen") return null;
  return element("span.soft", { title: "groups whose rewards are all the same" }, ` · ${run.equal} equal`);
}

function ago(time) {
  if (!time) return "?";
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  if (seconds < -60) return "in the future"; // another machine's clock
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return "just now";
}

function stamp(time) {
  if (!time) return "";
  const moment = new Date(time);
  return Number.isNaN(moment.getTime()) ? "" : moment.toLocaleString("sv-SE").slice(0, 16);
}

function say(text) {
  if (get("about").textContent !== text) get("about").textContent = text;
}

get("heads").addEventListener("click", (event) => {
  const column = event.target.dataset.column;
  if (!column) return;
  state.down = state.sort === column ? !state.down : ["when", "progress", "result"].includes(column);
  state.sort = column;
  draw();
  document.querySelector(`[data-column="${column}"]`).focus();
});
get("states").addEventListener("click", (event) => {
  const name = event.target.dataset.state;
  if (!name) return;
  if (!state.chosen.delete(name)) state.chosen.add(name);
  drawStates();
  draw();
});
get("q").addEventListener("input", draw);
get("filters").addEventListener("submit", (event) => event.preventDefault());

async function watch() {
  for (;;) {
    if (!document.hidden) {
      try {
        await load();
      } catch (error) {
        say(error.message);
        state.tag = null; // what came before is drawn again when the server is back
      }
      document.documentElement.dataset.ready = "1";
    }
    const lively = state.runs.some((run) => run.state === "running");
    await new Promise((done) => setTimeout(done, lively ? SOON : LATER));
  }
}

document.addEventListener("visibilitychange", () => document.hidden || load().catch((error) => say(error.message)));
watch();
