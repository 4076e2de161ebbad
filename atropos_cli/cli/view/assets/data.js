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
  facts(from) { return this.ask("groups", { from, limit: 1000 }); }
  search(filters, from) {
    const { q, env, stop, low, high, state } = filters;
    return this.ask("groups", { q, env, stop, low, high, failed: state === "failed", from, limit: 1000 });
  }
  group(run, n, first) { return this.ask("group", { run, n, first }); }
  diff(sort, from) { return this.ask("diff", { sort, from }); }
  async tokens(run, n, rollout) { return (await this.ask("tokens", { run, n, rollout })).sequences; }
  async message(run, n, rollout, message, part) {
    return (await this.ask("message", { run, n, rollout, message, part })).text;
  }
}

const UNPACKED = 6;

// Blocks of the file: i0, i1, ... hold what the list shows, g0, ... the groups, t0, ... their tokens.
class Embedded {
  constructor(data) {
    this.data = data;
    this.unpacked = new Map();
    this.places = new Map();
    this.listed = 0; // blocks whose groups have places
    this.rows = [];
    this.waiting = Promise.resolve();
  }

  async text(name) {
    const element = document.getElementById(name);
    if (!element) return "{}";
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old to unpack the file");
    const packed = atob(element.textContent);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    try {
      return await new Response(stream).text();
    } catch (error) {
      throw new Error("a part of this file is damaged");
    }
  }

  async block(name, text) {
    if (this.unpacked.has(name)) {
      const found = this.unpacked.get(name);
      this.unpacked.delete(name);
      this.unpacked.set(name, found);
      return found;
    }
    const found = JSON.parse(text === undefined ? await this.text(name) : text);
    this.unpacked.set(name, found);
    if (this.unpacked.size > UNPACKED) this.unpacked.delete(this.unpacked.keys().next().value);
    return found;
  }

  async run() { return this.data; }

  // from: a block, not a group.
  async facts(from) {
    const total = this.data.blocks.length;
    if (from >= total) return { items: [], next: total, total };
    const { items, rows } = JSON.parse(await this.text("i" + from));
    if (from === this.listed) {
      this.listed++;
      for (const item of items) this.places.set("0/" + item.n, from);
      for (const row of rows) {
        if (row.b !== null) this.places.set("1/" + row.b, from);
        this.rows.push(row);
      }
    }
    return { items, next: from + 1, total };
  }

  // Go on with the lists of blocks until the condition holds; one at a time.
  listUntil(condition) {
    this.waiting = this.waiting.then(async () => {
      while (!condition() && this.listed < this.data.blocks.length) await this.facts(this.listed);
    });
    return this.waiting;
  }

  async search(filters, from) {
    const total = this.data.blocks.length;
    if (from >= total) return { items: [], next: total, total };
    const wanted = filters.q.toLowerCase();
    const text = await this.text("g" + from);
    const { items } = JSON.parse(await this.text("i" + from));
    // JSON writes plain letters as they are: where they are not in the text, no group needs a closer look.
    const named = items.filter((item) => [item.id, item.task].some((name) => name && name.toLowerCase().includes(wanted)));
    if (/^[a-z0-9 _.,:;+*=()\[\]{}!?'-]+$/.test(wanted) && !text.toLowerCase().includes(wanted)) {
      return { items: named, next: from + 1, total };
    }
    const groups = JSON.parse(text);
    const found = items.filter((item) => named.includes(item) || [...textsOf(groups["0/" + item.n])].some((one) => one && one.toLowerCase().includes(wanted)));
    return { items: found, next: from + 1, total };
  }

  async group(run, n) {
    const key = run + "/" + n;
    await this.listUntil(() => this.places.has(key));
    const found = this.places.has(key) ? (await this.block("g" + this.places.get(key)))[key] : null;
    if (!found) throw new Error("group " + (n + 1) + " is not in this file");
    return found;
  }

  async tokens(run, n, rollout) {
    const place = this.places.get(run + "/" + n);
    return (await this.block("t" + place))[`${run}/${n}/${rollout}`] || [];
  }

  async message() { return null; }

  async diff(sort, from) {
    await this.listUntil(() => false);
    const sign = { worse: 1, better: -1 }[sort];
    const known = sign ? this.rows.filter((row) => row.delta !== null).sort((a, b) => sign * (a.delta - b.delta)) : this.rows;
    return { ready: true, counts: this.data.counts, rows: known.slice(from), next: known.length, total: known.length };
  }
}

function* textsOf(group) {
  for (const messages of [group.prompt || [], ...(group.rollouts || []).map((rollout) => rollout.messages)]) {
    for (const message of messages) {
      for (const part of message.parts) {
        yield part.name;
        yield part.text;
        for (const [name, value] of part.arguments || []) yield name + " " + value;
      }
    }
  }
}

function openData() {
  const embedded = document.getElementById("data");
  return embedded ? new Embedded(JSON.parse(embedded.textContent)) : new Served();
}
