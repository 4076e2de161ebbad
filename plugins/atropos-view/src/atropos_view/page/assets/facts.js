// What the list knows of every group: loaded once, then filtered, sorted and counted here.
"use strict";

const SORTS = {
  order: { name: "order in the file", low: true },
  reward: { name: "mean reward", low: false },
  spread: { name: "spread of rewards", low: false },
  length: { name: "length of replies", low: false },
  id: { name: "task id", low: true },
};

// The server's rule too: conditions on rollouts must hold for one and the same rollout.
class Facts {
  constructor() {
    this.items = [];
    this.known = new Set();
  }

  add(items) {
    for (const item of items) {
      if (this.known.has(item.n)) continue;
      this.known.add(item.n);
      prepare(item);
      this.items.push(item);
    }
  }

  // Forget the last group where it could not be read.
  dropBroken() {
    const last = this.items[this.items.length - 1];
    if (!last || !last.problem) return false;
    this.items.pop();
    return this.known.delete(last.n);
  }

  // The groups that pass, in order. found: positions that a search of texts found, or null.
  select(filters, found, sort, reverse) {
    const passed = this.items.filter((item) => (!found || found.has(item.n)) && passes(filters, item));
    const key = { reward: (item) => item.mean, spread: (item) => item.spread, length: (item) => item.length && item.length[0] }[sort];
    const up = SORTS[sort].low !== reverse ? 1 : -1;
    if (key) {
      const missing = (item) => key(item) === null || key(item) === undefined;
      passed.sort((a, b) => missing(a) - missing(b) || (missing(a) ? 0 : up * (key(a) - key(b))) || a.n - b.n);
    } else if (sort === "id") {
      const names = new Intl.Collator("en", { numeric: true });
      passed.sort((a, b) => up * names.compare(a.task, b.task) || a.n - b.n);
    } else passed.sort((a, b) => up * (a.n - b.n));
    return passed;
  }

  // Rewards of the rollouts that pass all but the range of rewards, in bars: [{low, high, count}, ...].
  bars(filters, found) {
    const open = { ...filters, low: "", high: "" };
    const counts = new Map();
    for (const item of this.items) {
      if ((found && !found.has(item.n)) || !item.scores || !passes(open, item)) continue;
      for (const [i, score] of item.scores.entries()) {
        if (score !== null && fits(open, item, i)) counts.set(score, (counts.get(score) || 0) + 1);
      }
    }
    const values = [...counts.keys()].sort((a, b) => a - b);
    if (values.length <= BARS) return values.map((value) => ({ low: value, high: value, count: counts.get(value) }));
    const [least, most] = [values[0], values[values.length - 1]];
    const bars = Array.from({ length: BARS }, () => ({ low: null, high: null, count: 0 }));
    for (const value of values) {
      // Halves, so that the range of two huge numbers is still a number.
      const bar = bars[Math.min(BARS - 1, Math.floor(((value / 2 - least / 2) / (most / 2 - least / 2)) * BARS))];
      if (bar.low === null) bar.low = value;
      bar.high = value;
      bar.count += counts.get(value);
    }
    return bars;
  }
}

const BARS = 20;

function prepare(item) {
  if (!item.scores) return;
  let [low, high, scored] = [Infinity, -Infinity, 0];
  for (const score of item.scores) {
    if (score === null) continue;
    scored++;
    low = Math.min(low, score);
    high = Math.max(high, score);
  }
  item.scored = scored;
  item.spread = low <= high ? high - low : null;
  item.failedOnes = new Set(item.failed);
  item.cutOnes = new Set(item.cut);
}

function passes(filters, item) {
  if (filters.groups === "unreadable") return Boolean(item.problem);
  const narrowed = filters.state || filters.stop || filters.low !== "" || filters.high !== "" || filters.groups || filters.env;
  if (item.problem) return !narrowed;
  if (filters.env && filters.env !== item.env) return false;
  if (filters.groups === "failures" && !item.failed.length) return false;
  if (filters.groups === "equal" && !(item.spread !== null && item.spread <= 1e-9 && item.scored > 1)) return false;
  if (filters.groups === "spread" && !(item.spread > 1e-9)) return false;
  if (!filters.state && !filters.stop && filters.low === "" && filters.high === "") return true;
  return item.scores.some((_, i) => fits(filters, item, i));
}

function fits(filters, item, i) {
  const score = item.scores[i];
  const failed = item.failedOnes.has(i);
  if (filters.stop && filters.stop !== (item.stops.length === 1 ? item.stops[0] : item.stops[i])) return false;
  if (filters.state === "failed" && !failed) return false;
  if (filters.state === "cut" && !item.cutOnes.has(i)) return false;
  if (filters.state === "ended" && (failed || item.cutOnes.has(i))) return false;
  if (filters.state === "unscored" && (failed || score !== null)) return false;
  if (filters.low !== "" && !(score !== null && score >= Number(filters.low))) return false;
  return filters.high === "" || (score !== null && score <= Number(filters.high));
}
