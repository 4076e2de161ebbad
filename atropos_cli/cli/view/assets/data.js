// Where the page's data come from: the server, or the file itself. Both answer the same questions.
"use strict";

class Served {
  async ask(what, given) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(given || {})) {
      if (value !== "" && value !== null && value !== undefined && value !== false) query.set(name, value === true ? "1" : value);
    }
    let answer;
    try {
      answer = await fetch("api/" + what + "?" + query, { cache: "no-store" });
    } catch (error) {
      throw new Error("the server does not answer; is atropos view still running?");
    }
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.error || "status " + answer.status);
    return data;
  }
  run() { return this.ask("run"); }
  groups(filters, from, limit) { return this.ask("groups", { ...filters, from, limit }); }
  group(run, n, first) { return this.ask("group", { run, n, first }); }
  diff(sort, from) { return this.ask("diff", { sort, from }); }
  async tokens(run, n, attempt) { return (await this.ask("tokens", { run, n, attempt })).sequences; }
  async message(run, n, attempt, message, field) {
    return (await this.ask("message", { run, n, attempt, message, field })).text;
  }
}

class Embedded {
  constructor(data) {
    this.data = data;
  }
  async run() { return this.data; }
  async groups(filters, from, limit) {
    const items = [];
    let at = from;
    for (; at < this.data.items.length && items.length < limit; at++) {
      const item = this.data.items[at];
      if (matches(filters, item, this.data.groups["0/" + item.n])) items.push(item);
    }
    return { items, next: at, total: this.data.items.length };
  }
  async group(run, n) {
    const found = this.data.groups[run + "/" + n];
    if (!found) throw new Error("group " + (n + 1) + " is not in this file");
    return found;
  }
  async tokens(run, n, attempt) { return this.data.tokens[`${run}/${n}/${attempt}`] || []; }
  async message() { return null; }
  async diff(sort, from) {
    const { counts, rows } = this.data.diff;
    const sign = { worse: 1, better: -1 }[sort];
    const known = sign ? rows.filter((row) => row.delta !== null).sort((a, b) => sign * (a.delta - b.delta)) : rows;
    return { ready: true, counts, rows: known.slice(from), next: known.length, total: known.length };
  }
}

// The server's rules, for groups inside the file: conditions on attempts must hold for one and the same attempt.
function matches(filters, item, group) {
  if (filters.env && filters.env !== item.env) return false;
  const low = filters.low === "" || filters.low === undefined ? null : Number(filters.low);
  const high = filters.high === "" || filters.high === undefined ? null : Number(filters.high);
  if (filters.stop || filters.failed || low !== null || high !== null) {
    const fits = (group.attempts || []).some((attempt) =>
      (!filters.failed || attempt.failure) &&
      (!filters.stop || filters.stop === attempt.stop || filters.stop === attempt.finish) &&
      (low === null || (attempt.score !== null && attempt.score >= low)) &&
      (high === null || (attempt.score !== null && attempt.score <= high)));
    if (!fits) return false;
  }
  if (!filters.q) return true;
  const wanted = filters.q.toLowerCase();
  const texts = [item.id, item.task, ...textsOf(group)];
  return texts.some((text) => text && text.toLowerCase().includes(wanted));
}

function* textsOf(group) {
  for (const messages of [group.prompt || [], ...(group.attempts || []).map((attempt) => attempt.messages)]) {
    for (const message of messages) {
      yield message.text;
      yield message.reasoning;
      for (const call of message.calls || []) yield call.name + " " + call.arguments;
    }
  }
}

function openData() {
  const embedded = document.getElementById("data");
  return embedded ? new Embedded(JSON.parse(embedded.textContent)) : new Served();
}
