// What is known of the runs: one line for one run, a table of what differs for two.
"use strict";

const CELLS = [["model", "model"], ["environment", "env"], ["made", "made"], ["command", "command"], ["state", "state"], ["atropos", "version"]];

function describeRuns(meta, counts) {
  const { runs } = meta;
  const rows = CELLS.map(([name, key]) => [name, runs.map((run) => key === "made" ? moment(run.about[key]) : run.about[key] || "")]);
  rows.push(["groups", runs.map((run) => run.groups.toLocaleString("en"))]);
  if (counts && counts.runs) {
    rows.push(["rollouts", counts.runs.map((one) => one.scored.toLocaleString("en") + " with a reward" + (one.failed ? `, ${one.failed} failed` : ""))]);
    rows.push(["mean reward", counts.runs.map((one) => number(one.mean === null ? null : Number(one.mean.toFixed(4))))]);
  }
  rows.push(["files", runs.map((run) => run.files[0] + (run.file_count > 1 ? ` and ${run.file_count - 1} more` : ""))]);
  const options = new Map();
  for (const [i, run] of runs.entries()) {
    for (const [name, value] of run.about.options) {
      if (!options.has(name)) options.set(name, runs.map(() => ""));
      options.get(name)[i] = value;
    }
  }
  const differs = (values) => values.some((value) => value !== values[0]);
  const known = rows.filter(([, values]) => values.some(Boolean));
  const ours = [...options].filter(([, values]) => differs(values));
  const same = [...options].filter(([, values]) => !differs(values));
  const table = (lines) => element("div.wide", null, element("table", null,
    element("thead", null, element("tr", null, element("td"), ...runs.map((run) => element("th", { scope: "col" }, line(run.name))))),
    element("tbody", null, ...lines.map(([name, values]) => element(runs.length > 1 && differs(values) ? "tr.differs" : "tr", null,
      element("th", { scope: "row" }, line(name)), ...values.map((value) => element("td", null, line(value || "–"))))))));
  const lines = runs.length > 1 ? [...known, ...ours] : [...known, ...same];
  const box = element("details.compared", { open: runs.length > 1 },
    element("summary", null, runs.length > 1 ? "What is compared" : "About this run"), table(lines));
  if (runs.length > 1 && same.length) {
    box.append(element("details", null, element("summary", null, plural(same.length, "option") + " the same"), table(same)));
  }
  return box;
}

// "2026-01-31T12:00:05+00:00" as people write it.
function moment(text) {
  return /^\d{4}-\d\d-\d\dT[\d:]+\+00:00$/.test(text || "") ? text.slice(0, 10) + " " + text.slice(11, 19) + " UTC" : text || "";
}

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
  const alone = [[c.only_a, "first"], [c.only_b, "second"]].filter(([count]) => count).map(([count, name]) => `${count} only in the ${name} run`);
  say(`${plural(c.both, "task")} in both: ${c.better} better, ${c.worse} worse, ${c.same} the same${change}` + (alone.length ? "; " + alone.join(", ") : ""));
  if (!state.items.length) drawAbout(c);
  for (const row of answer.rows) row.n = row.a;
  state.items = [...state.items, ...answer.rows];
  get("more").hidden = state.next >= state.total;
  lines.show(state.items);
}

function diffLine(row) {
  const kind = row.delta === null || Math.abs(row.delta) < 1e-8 ? "" : row.delta > 0 ? ".better" : ".worse";
  const means = `${number(row.mean_a)} → ${row.b === null ? "not there" : number(row.mean_b)}`;
  const link = element("a", { href: address(row.n), "data-n": row.n },
    element("span.n", null, String(row.n + 1)), element("span.task", null, line(row.task)),
    element("span.delta" + kind, null, row.delta === null ? "–" : kind ? signed(row.delta) : "same"), element("span.preview", null, means));
  if (row.n === state.chosen) link.setAttribute("aria-current", "true");
  return link;
}

function drawAbout(counts) {
  get("compared").replaceChildren(describeRuns(state.meta, counts));
}
