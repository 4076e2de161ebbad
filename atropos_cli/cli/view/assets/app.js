// The page: a list of groups with filters, the chosen group, keys, and an address that keeps both.
"use strict";

const get = (id) => document.getElementById(id);
const FIELDS = ["q", "env", "stop", "low", "high", "state", "groups"];
const HELD = 300000; // groups the list holds at first; "More" reads on
const data = openData();
const facts = new Facts();
const state = {
  items: [], next: 0, total: 0, chosen: null, asked: 0, view: null, tokens: false, mode: "groups", sort: "worse", meta: null,
  order: "order", reverse: false, found: null, searched: null, from: 0, all: 1, held: HELD, loading: false,
};
const lines = new LineList(get("scroller"), get("list"), (item) => (state.mode === "diff" ? diffLine(item) : listLine(item)), () => {
  if (state.mode === "diff" && !get("more").hidden) more();
});

function filters() {
  const given = {};
  for (const name of FIELDS) given[name] = get(name).value.trim();
  for (const name of ["low", "high"]) if (given[name] !== "" && !Number.isFinite(Number(given[name]))) given[name] = "";
  return given;
}

function filtering() {
  return Object.values(filters()).some(Boolean);
}

// The address: #group=12&rollout=3&q=... Positions count from 1, as people do.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of FIELDS) get(name).value = given.get(name) || "";
  if (given.get("failed") === "1") get("state").value = "failed";
  state.order = Object.hasOwn(SORTS, given.get("sort") || "") ? given.get("sort") : "order";
  state.reverse = given.get("reverse") === "1";
  get("sort").value = state.order;
  get("reverse").setAttribute("aria-pressed", String(state.reverse));
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
  for (const [name, value] of Object.entries(filters())) if (value) parts.set(name, value);
  if (state.order !== "order") parts.set("sort", state.order);
  if (state.reverse) parts.set("reverse", "1");
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
  const asked = ++state.asked;
  get("more").hidden = true;
  get("scroller").scrollTop = 0;
  try {
    if (state.mode === "diff") {
      Object.assign(state, { items: [], next: 0 });
      lines.show([]);
      await moreOfDiff(asked);
    } else await search(asked);
  } catch (error) {
    if (asked === state.asked) say(error.message);
  }
}

async function more() {
  if (state.mode !== "diff") {
    state.held = facts.items.length + HELD;
    return load();
  }
  const asked = ++state.asked;
  get("more").hidden = true;
  try {
    await moreOfDiff(asked);
  } catch (error) {
    if (asked === state.asked) say(error.message);
  }
}

// Read what the list shows of all groups, piece by piece; what is there is listed meanwhile.
async function load() {
  if (state.loading) return;
  state.loading = true;
  let shownAt = 0;
  try {
    do {
      const answer = await data.facts(state.from);
      state.from = answer.next;
      state.all = answer.total;
      for (const item of answer.items) learn(item);
      facts.add(answer.items);
      const over = state.from >= state.all;
      if (state.mode === "groups" && (over || performance.now() - shownAt > 500)) {
        refresh();
        shownAt = performance.now();
      }
      if (!over) await new Promise((done) => setTimeout(done, 0));
    } while (state.from < state.all && facts.items.length < state.held);
  } finally {
    state.loading = false;
  }
  if (state.mode === "groups") refresh();
}

function learn(item) {
  if (item.scores) learnRange(item.env, item.scores);
  suggest("envs", item.env);
  for (const stop of item.stops || []) suggest("stops", stop);
}

const suggested = { envs: new Set(), stops: new Set() };

function suggest(id, text) {
  const known = suggested[id];
  if (!text || known.size > 50 || known.has(text)) return;
  known.add(text);
  get(id).append(element("option", { value: text }));
}

// What the fields ask for, out of what is known by now.
function refresh() {
  const wanted = filters();
  state.items = facts.select(wanted, state.found, state.order, state.reverse);
  lines.show(state.items);
  drawHistogram(get("histogram"), facts.bars(wanted, state.found), wanted, (low, high) => {
    get("low").value = low;
    get("high").value = high;
    changed();
  });
  const total = state.meta.held !== undefined ? state.meta.held : state.meta.runs[0].groups;
  const read = state.from < state.all ? `, ${Math.floor((100 * state.from) / state.all)} % read` : "";
  const searched = state.searched !== null && state.searched < 1 ? `, ${Math.floor(100 * state.searched)} % searched` : "";
  if (filtering()) say(plural(state.items.length, "group") + " found" + (searched || read));
  else say(read ? `${state.items.length.toLocaleString("en")} of ${plural(total, "group")} listed` : plural(state.items.length, "group"));
  get("more").hidden = state.loading || state.from >= state.all;
}

// Look for texts where the groups are. The other fields are looked at here, in what is known of every group.
async function search(asked) {
  const wanted = filters();
  state.found = wanted.q ? new Set() : null;
  state.searched = wanted.q ? 0 : null;
  refresh();
  if (!wanted.q) return;
  let [from, shownAt] = [0, 0];
  do {
    const answer = await data.search(wanted, from);
    if (asked !== state.asked) return; // the fields changed meanwhile
    from = answer.next;
    for (const item of answer.items) {
      learn(item);
      state.found.add(item.n);
    }
    facts.add(answer.items);
    state.searched = answer.total ? from / answer.total : 1;
    if (from >= answer.total || performance.now() - shownAt > 300) {
      refresh();
      shownAt = performance.now();
    }
    if (from >= answer.total) break;
  } while (true);
}

function listLine(item) {
  const link = element("a", { href: address(item.n), "data-n": item.n });
  link.append(element("span.n", null, String(item.n + 1)), element("span.task", null, line(item.task, get("q").value.trim())));
  if (item.problem) {
    link.append(element("span.problem", null, line(item.problem)));
  } else {
    const failed = item.failedOnes;
    const squares = item.scores.slice(0, SQUARES).map((score, i) => square(item.env, score, failed.has(i)));
    if (item.rollouts > squares.length) squares.push(element("span.soft", null, "+" + (item.rollouts - squares.length)));
    link.append(element("span.mean", { title: "mean reward" }, item.mean === null ? "" : number(Number(item.mean.toFixed(3)))),
      element("span.squares", null, ...squares));
    const length = item.length && state.order === "length" ? `${number(item.length[0])} ${item.length[1]}` : null;
    const spread = state.order === "spread" && item.spread !== null ? `spread ${number(Number(item.spread.toFixed(3)))}` : null;
    link.append(element("span.preview", null, length || spread ? element("b", null, (length || spread) + "  ") : null,
      failed.size ? element("span.problem", null, `${failed.size} failed `) : null, line(item.preview)));
  }
  if (item.n === state.chosen) link.setAttribute("aria-current", "true");
  return link;
}

const SQUARES = 14;

// The chosen group ---------------------------------------------------------------------------------------------

async function choose(n, rollout) {
  state.chosen = n;
  const marker = (state.drawing = {});
  lines.reveal(state.items.findIndex((item) => item.n === n));
  for (const link of get("list").querySelectorAll("a")) {
    if (Number(link.dataset.n) === n) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
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
    get("shown").replaceChildren(...sides.map((side) => side.render()));
    get("shown").classList.toggle("two", sides.length > 1);
    get("main").scrollTop = 0;
    if (rollout !== null && rollout !== undefined) showRollout(rollout);
  } catch (error) {
    if (state.drawing === marker) get("shown").replaceChildren(element("p.problem", null, error.message));
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
  box.scrollIntoView({ block: "nearest", inline: "nearest" });
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
  get("list").classList.toggle("changes", mode === "diff");
  get("tab-groups").setAttribute("aria-pressed", String(mode === "groups"));
  get("tab-diff").setAttribute("aria-pressed", String(mode === "diff"));
  get("filters").hidden = mode === "diff";
  get("sorts").hidden = mode !== "diff";
  for (const button of get("sorts").children) button.setAttribute("aria-pressed", String(button.dataset.sort === state.sort));
}

function changed() {
  keepAddress();
  restart();
}

let typed = null;
for (const kind of ["input", "change"]) {
  get("filters").addEventListener(kind, (event) => {
    if (event.target.id === "sort" || (kind === "change" && event.target.tagName !== "SELECT")) return;
    clearTimeout(typed);
    typed = setTimeout(changed, 200);
  });
}
get("filters").addEventListener("submit", (event) => event.preventDefault());
get("sort").append(...Object.entries(SORTS).map(([value, { name }]) => element("option", { value }, "sort by " + name)));
function sorted() {
  keepAddress();
  get("scroller").scrollTop = 0;
  refresh();
}
get("sort").addEventListener("change", () => {
  state.order = get("sort").value;
  sorted();
});
get("reverse").addEventListener("click", () => {
  state.reverse = !state.reverse;
  get("reverse").setAttribute("aria-pressed", String(state.reverse));
  sorted();
});
get("clear").addEventListener("click", () => {
  get("filters").reset();
  state.order = "order";
  state.reverse = false;
  get("reverse").setAttribute("aria-pressed", "false");
  changed();
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
  get("title").replaceChildren(line(run.name), ...(other ? [" compared with ", line(other.name)] : []));
  const parts = other ? [] : [plural(run.groups, "group")];
  for (const key of other ? [] : ["env", "model"]) if (run.about[key]) parts.push(run.about[key]);
  if (meta.held !== undefined && meta.held < meta.total) parts.push(`this file holds the first ${meta.held.toLocaleString("en")}`);
  if (run.file_count > 1) parts.push(plural(run.file_count, "file"));
  if (run.left_out) parts.push(plural(run.left_out, "unreadable row") + " left out");
  if (run.note) parts.push(run.note);
  get("about").replaceChildren(line(parts.join(" · ")));
  get("tabs").hidden = !other;
}

// A run that is being written grows: look now and then, while the page is looked at.
async function watch() {
  if (!state.meta.runs[0].grows || !(data instanceof Served)) return;
  setInterval(async () => {
    if (document.hidden || state.mode !== "groups" || state.loading) return;
    try {
      const meta = await data.run();
      if (meta.runs[0].groups === state.meta.runs[0].groups) return;
      state.meta = meta;
      describe(meta);
      if (facts.dropBroken()) state.from--; // it was half a row then
      await load();
      if (state.chosen === null && state.items.length) await choose(state.items[0].n); // the page was opened before the first
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
  if (innerWidth <= 800 && !filtering()) get("narrow").open = false;
  drawAbout(null);
  let loaded = null;
  if (state.mode === "diff") await restart();
  else {
    // The first piece is enough to begin with; the others come while the page is used.
    loaded = load();
    const some = new Promise((done) => {
      const look = () => (facts.items.length || !state.loading ? done() : setTimeout(look, 10));
      look();
    });
    await Promise.race([loaded, some]);
    if (filters().q) await restart();
    else refresh();
  }
  const first = wanted.group !== null ? wanted.group : state.items.length ? state.items[0].n : null;
  if (first !== null) await choose(first, wanted.rollout);
  else if (state.mode === "groups" && !filtering()) get("shown").replaceChildren(element("p.soft", null, "No rollouts yet."));
  document.documentElement.dataset.ready = "1";
  await (loaded || load());
  watch();
}

start().catch((error) => say(error.message));
