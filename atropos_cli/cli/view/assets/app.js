// The page: a list of groups with filters, the chosen group, keys, and an address that keeps both.
"use strict";

const LIMIT = 100;
const get = (id) => document.getElementById(id);
const FIELDS = ["q", "env", "stop", "low", "high", "failed"];
const data = openData();
const state = { items: [], next: 0, total: 0, chosen: null, asked: 0, view: null, tokens: false, mode: "groups", sort: "worse", meta: null };

function filters() {
  const given = {};
  for (const name of FIELDS) given[name] = name === "failed" ? get("failed").checked : get(name).value.trim();
  return given;
}

function filtering() {
  return Object.values(filters()).some(Boolean);
}

// The address: #group=12&rollout=3&q=... Positions count from 1, as people do.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of FIELDS) {
    if (name === "failed") get("failed").checked = given.get("failed") === "1";
    else get(name).value = given.get(name) || "";
  }
  const sort = given.get("compare");
  state.mode = sort !== null && state.meta.runs.length > 1 ? "diff" : "groups";
  if (["worse", "better", "order"].includes(sort)) state.sort = sort;
  const group = Number.parseInt(given.get("group"), 10);
  const rollout = Number.parseInt(given.get("rollout"), 10);
  return { group: group > 0 ? group - 1 : null, rollout: rollout >= 0 ? rollout : null };
}

function address(n, rollout) {
  const parts = new URLSearchParams();
  if (state.mode === "diff") parts.set("compare", state.sort);
  if (n !== null) parts.set("group", n + 1);
  if (rollout !== null && rollout !== undefined) parts.set("rollout", rollout);
  for (const [name, value] of Object.entries(filters())) if (value) parts.set(name, value === true ? "1" : value);
  return "#" + parts;
}

function keepAddress(rollout) {
  const wanted = address(state.chosen, rollout);
  if (location.hash !== wanted) history.replaceState(null, "", wanted);
}

function say(text) {
  get("status").textContent = text;
}

// The list -----------------------------------------------------------------------------------------------------

async function restart() {
  state.items = [];
  state.next = 0;
  get("list").replaceChildren();
  await more();
}

async function more() {
  const asked = ++state.asked;
  get("more").hidden = true;
  try {
    if (state.mode === "diff") await moreOfDiff(asked);
    else await moreOfGroups(asked);
  } catch (error) {
    if (asked === state.asked) say(error.message);
  }
}

async function moreOfGroups(asked) {
  const wanted = filters();
  const goal = state.items.length + LIMIT;
  do {
    const answer = await data.groups(wanted, state.next, goal - state.items.length);
    if (asked !== state.asked) return; // the filters changed meanwhile
    state.next = answer.next;
    state.total = answer.total;
    addItems(answer.items);
    const found = plural(state.items.length, "group");
    if (!filtering()) say(state.next < state.total ? `${state.next.toLocaleString("en")} of ${plural(state.total, "group")} listed` : found);
    else say(`${found} found` + (state.next < state.total ? `, ${Math.floor((100 * state.next) / state.total)} % searched` : ""));
  } while (state.next < state.total && state.items.length < goal);
  get("more").hidden = state.next >= state.total;
}

function addItems(items) {
  const list = get("list");
  for (const item of items) {
    if (item.scores) learnRange(item.env, item.scores);
    suggest("envs", item.env);
    for (const stop of item.stops || []) suggest("stops", stop);
    state.items.push(item);
    list.append(listLine(item));
  }
}

function suggest(id, text) {
  const known = get(id);
  if (!text || known.childElementCount > 50 || [...known.children].some((option) => option.value === text)) return;
  known.append(element("option", { value: text }));
}

function listLine(item) {
  const link = element("a", { href: address(item.n), "data-n": item.n });
  link.append(element("span.n", null, String(item.n + 1)), element("span.task", null, line(item.task, get("q").value.trim())));
  if (item.problem) {
    link.append(element("span.problem", null, line(item.problem)));
  } else {
    const squares = item.scores.map((score) => square(item.env, score, false));
    if (item.attempts > item.scores.length) squares.push(element("span.soft", null, "+" + (item.attempts - item.scores.length)));
    link.append(element("span.squares", null, ...squares),
      element("span.mean", null, item.mean === null ? "" : number(Number(item.mean.toFixed(3)))));
    if (item.preview && !item.preview.startsWith(item.task.slice(0, 40))) link.append(element("span.preview", null, line(item.preview)));
    if (item.failed) link.append(element("span.problem", null, `${item.failed} failed`));
  }
  if (item.n === state.chosen) link.setAttribute("aria-current", "true");
  return element("li", null, link);
}

// The comparison -----------------------------------------------------------------------------------------------

async function moreOfDiff(asked) {
  let answer = await data.diff(state.sort, state.next);
  while (!answer.ready) {
    say(`comparing: ${answer.done.toLocaleString("en")} of ${plural(answer.total, "group")} read`);
    await new Promise((done) => setTimeout(done, 250));
    if (asked !== state.asked) return;
    answer = await data.diff(state.sort, state.next);
  }
  if (asked !== state.asked) return;
  if (answer.problem) throw new Error(answer.problem);
  state.next = answer.next;
  state.total = answer.total;
  const c = answer.counts;
  const change = c.mean_change === null ? "" : `, mean change ${signed(c.mean_change)}`;
  say(`${plural(c.both, "task")} in both: ${c.better} better, ${c.worse} worse, ${c.same} the same${change}; ${c.only_a} only in the first run, ${c.only_b} only in the second`);
  for (const row of answer.rows) {
    row.n = row.a;
    state.items.push(row);
    get("list").append(diffLine(row));
  }
  get("more").hidden = state.next >= state.total;
}

function diffLine(row) {
  const kind = row.delta === null || Math.abs(row.delta) < 1e-8 ? "" : row.delta > 0 ? ".better" : ".worse";
  const means = `${number(row.mean_a)} → ${row.b === null ? "not there" : number(row.mean_b)}`;
  const link = element("a", { href: address(row.n), "data-n": row.n },
    element("span.n", null, String(row.n + 1)), element("span.task", null, line(row.task)),
    element("span.delta" + kind, null, row.delta === null ? "–" : signed(row.delta)), element("span.preview", null, means));
  if (row.n === state.chosen) link.setAttribute("aria-current", "true");
  return element("li", null, link);
}

// The chosen group ---------------------------------------------------------------------------------------------

async function choose(n, rollout) {
  state.chosen = n;
  const marker = (state.drawing = {});
  for (const link of get("list").querySelectorAll("a")) {
    if (Number(link.dataset.n) === n) {
      link.setAttribute("aria-current", "true");
      link.scrollIntoView({ block: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  keepAddress(rollout);
  const needle = get("q").value.trim();
  try {
    const sides = [await view(0, n, needle)];
    const row = state.mode === "diff" ? state.items.find((item) => item.n === n) : null;
    if (row && row.b !== null) sides.push(await view(1, row.b, needle));
    if (state.drawing !== marker) return; // another group was chosen meanwhile
    state.view = sides[0];
    state.views = sides;
    get("main").replaceChildren(...sides.map((side) => side.render()));
    get("main").classList.toggle("two", sides.length > 1);
    get("main").scrollTop = 0;
    if (rollout !== null && rollout !== undefined) showRollout(rollout);
  } catch (error) {
    if (state.drawing === marker) get("main").replaceChildren(element("p.problem", null, error.message));
  }
}

async function view(run, n, needle) {
  const title = state.mode === "diff" ? state.meta.runs[run].name : "";
  return new GroupView(await data.group(run, n), { data, run, needle, tokens: state.tokens, title, folded: run > 0 });
}

function step(by) {
  const at = state.items.findIndex((item) => item.n === state.chosen);
  const next = state.items[at < 0 ? 0 : at + by];
  if (next) choose(next.n);
  else if (by > 0 && !get("more").hidden) more().then(() => state.items[at + 1] && choose(state.items[at + 1].n));
}

function showRollout(index) {
  const box = get("main").querySelector(`.rollout[data-index="${index}"]`);
  if (!box) return;
  box.focus({ preventScroll: true });
  box.scrollIntoView({ block: "nearest", inline: "center" });
  keepAddress(index);
}

function stepRollout(by) {
  const boxes = [...get("main").querySelectorAll(".rollout")];
  const at = boxes.indexOf(document.activeElement);
  const next = boxes[at < 0 ? 0 : Math.min(boxes.length - 1, Math.max(0, at + by))];
  if (next) showRollout(Number(next.dataset.index));
}

// Keys, tabs, start --------------------------------------------------------------------------------------------

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  l: () => stepRollout(1),
  h: () => stepRollout(-1),
  t: () => {
    state.tokens = !state.tokens;
    for (const side of state.views || []) side.toggleTokens(state.tokens);
  },
  p: () => {
    for (const prompt of get("main").querySelectorAll("details.prompt")) prompt.open = !prompt.open;
  },
  "/": () => get("q").focus(),
  "?": () => get("help").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || get("help").open) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox";
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

function setMode(mode) {
  state.mode = mode;
  get("tab-groups").setAttribute("aria-pressed", String(mode === "groups"));
  get("tab-diff").setAttribute("aria-pressed", String(mode === "diff"));
  get("filters").hidden = mode === "diff";
  get("sorts").hidden = mode !== "diff";
  for (const button of get("sorts").children) button.setAttribute("aria-pressed", String(button.dataset.sort === state.sort));
}

let typed = null;
get("filters").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    keepAddress();
    restart();
  }, 200);
});
get("filters").addEventListener("submit", (event) => event.preventDefault());
get("clear").addEventListener("click", () => {
  get("filters").reset();
  keepAddress();
  restart();
});
get("more").addEventListener("click", more);
get("help-button").addEventListener("click", () => get("help").showModal());
get("list").addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  choose(Number(link.dataset.n));
});
for (const [id, mode] of [["tab-groups", "groups"], ["tab-diff", "diff"]]) {
  get(id).addEventListener("click", () => {
    setMode(mode);
    keepAddress();
    restart();
  });
}
get("sorts").addEventListener("click", (event) => {
  if (!event.target.dataset.sort) return;
  state.sort = event.target.dataset.sort;
  setMode("diff");
  keepAddress();
  restart();
});
window.addEventListener("hashchange", async () => {
  const wanted = readAddress();
  setMode(state.mode);
  await restart();
  if (wanted.group !== null) choose(wanted.group, wanted.rollout);
});

function describe(meta) {
  const [run, other] = meta.runs;
  get("title").replaceChildren(line(run.name), ...(other ? [" and ", line(other.name)] : []));
  const parts = [plural(run.groups, "group")];
  if (meta.held !== undefined && meta.held < meta.total) parts.push(`this file holds the first ${meta.held}`);
  if (run.file_count > 1) parts.push(plural(run.file_count, "file"));
  if (run.left_out) parts.push(plural(run.left_out, "unreadable row") + " left out");
  if (run.note) parts.push(run.note);
  get("about").textContent = parts.join("; ");
  get("tabs").hidden = !other;
}

// A run that is being written grows: look now and then, while the page is looked at.
async function watch() {
  if (!state.meta.runs[0].grows || !(data instanceof Served)) return;
  setInterval(async () => {
    if (document.hidden || state.mode !== "groups") return;
    try {
      const meta = await data.run();
      if (meta.runs[0].groups === state.meta.runs[0].groups) return;
      state.meta = meta;
      describe(meta);
      state.total = meta.runs[0].groups;
      get("more").hidden = state.next >= state.total;
    } catch (error) {
      say(error.message);
    }
  }, 5000);
}

async function start() {
  state.meta = await data.run();
  describe(state.meta);
  const wanted = readAddress();
  if (state.meta.runs.length > 1 && !location.hash) state.mode = "diff";
  setMode(state.mode);
  await restart();
  const first = wanted.group !== null ? wanted.group : state.items.length ? state.items[0].n : null;
  if (first !== null) await choose(first, wanted.rollout);
  document.documentElement.dataset.ready = "1";
  watch();
}

start().catch((error) => say(error.message));
