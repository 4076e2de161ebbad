// One group: what its rollouts share on top, then the rollouts side by side.
"use strict";

class GroupView {
  // options: data, run (0 or 1), needle (what is searched), tokens (show them?), title,
  // folded (is the prompt closed at first?)
  constructor(payload, options) {
    this.payload = payload;
    Object.assign(this, options);
  }

  render() {
    const group = this.payload;
    if (group.problem) {
      return element("section.group", null,
        element("h2", null, "Not readable: ", line(group.where)),
        element("p.problem", null, line(group.problem)),
        element("pre", null, shown(group.text)));
    }
    learnRange(group.env, group.attempts.map((attempt) => attempt.score));
    this.columns = element(group.attempts.length > 1 ? "div.rollouts" : "div.rollouts.single", null, ...group.attempts.map((attempt) => this.rollout(attempt)));
    return element("section.group", null, this.head(), this.prompt(), this.columns, this.more());
  }

  head() {
    const group = this.payload;
    const facts = [
      ["environment", group.env], ["group", group.id], ["model", group.model], ["seed", group.seed],
      ["episode", group.episode], ["turn", group.turn], ["format", group.format], ["from", group.where],
    ];
    const shownFacts = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
    return element("div.head", null,
      element("h2", null, this.title ? element("span.run", null, line(this.title), " ") : null, group.named ? "Task " : null, line(group.task, this.needle)),
      element("dl.facts", null, ...shownFacts.map(([name, value]) => element("div", null,
        element("dt", null, name), element("dd", null, line(value, name === "group" ? this.needle : ""))))),
      this.side("answer", group.answer), this.side("info", group.info), this.side("tools", group.tools));
  }

  side(name, text) {
    if (text === null || text === undefined) return null;
    if (text.length <= 100 && !text.includes("\n")) {
      return element("p.answer", null, element("span.soft", null, name + " "), shown(text));
    }
    return element("details", null, element("summary", null, name), element("pre", null, shown(text)));
  }

  prompt() {
    const messages = this.payload.prompt;
    if (!messages.length) return null;
    const others = messages.filter((message) => message.role !== "system" && message.role !== "developer"); // these fold themselves
    const long = others.reduce((sum, message) => sum + message.parts.reduce((size, part) => size + (part.text || "").length, 0), 0) > 1500;
    return element("details.prompt", { open: !this.folded && (!long || Boolean(this.needle)) },
      element("summary", null, "prompt, " + plural(messages.length, "message")),
      ...messages.map((message) => this.message(message, this.payload.attempts.length ? this.payload.attempts[0].index : -1)));
  }

  rollout(attempt) {
    const group = this.payload;
    const box = element("article.rollout", { "data-index": attempt.index, tabindex: -1 });
    const tokens = element("div.tokens", { hidden: true });
    const body = element("div.body", null,
      ...attempt.messages.map((message) => this.message(message, attempt.index)),
      attempt.more ? element("p.soft", null, plural(attempt.more, "more message") + " not shown") : null);
    const toggle = attempt.tokens
      ? element("button.toggle", { type: "button", "aria-pressed": "false", onclick: () => this.showTokens(attempt, box) }, "Tokens")
      : null;
    box.append(element("header", null,
      element("div.score", null,
        square(group.env, attempt.failure ? null : attempt.score, Boolean(attempt.failure)),
        element("strong", null, attempt.failure ? "failed" : number(attempt.score)),
        attempt.advantage !== null ? element("span.soft", { title: "advantage" }, " " + signed(attempt.advantage)) : null,
        element("span.index", null, "#" + attempt.index), toggle),
      this.chips(attempt)));
    if (attempt.failure) {
      const failure = attempt.failure;
      box.append(element("p.problem", null, line(failure.stage + ": " + failure.type), element("br"), shown(failure.message)));
    }
    box.append(body, tokens);
    if (this.tokens && attempt.tokens) this.showTokens(attempt, box);
    return box;
  }

  // Values of 0 say nothing in a row of twenty: their names are in the title of the last chip.
  chips(attempt) {
    const list = element("ul.chips");
    const zeros = [];
    const chip = (kind, title, ...content) => list.append(element(kind, { title }, ...content));
    if (attempt.label) chip("li", null, line(attempt.label));
    const reason = attempt.stop || attempt.finish;
    if (reason) chip(attempt.truncated ? "li.cut" : "li", "stop reason", line(reason));
    for (const [kind, values] of [["li", attempt.rewards], ["li.metric", attempt.metrics]]) {
      for (const [name, value] of Object.entries(values)) {
        if (value === 0) zeros.push(name);
        else chip(kind, kind === "li" ? "reward" : "metric", line(name), element("b", null, number(value)));
      }
    }
    if (attempt.tokens) {
      const { total, trained, logprobs } = attempt.tokens;
      chip("li.metric", logprobs ? "with log probabilities" : "without log probabilities", `${trained.toLocaleString("en")} of ${plural(total, "token")} trained`);
    }
    if (zeros.length) list.title = "0: " + zeros.join(", ").replace(ODD, "?");
    return list;
  }

  message(message, attempt) {
    return new MessageView(message, attempt, this).render();
  }

  more() {
    const group = this.payload;
    const last = group.first + group.attempts.length;
    if (last >= group.total) return null;
    const button = element("button", { type: "button" }, "More");
    button.addEventListener("click", async () => {
      button.disabled = true;
      const next = await this.data.group(this.run, group.n, last);
      if (next.first !== last) return; // a file holds only the first ones
      group.attempts.push(...next.attempts);
      this.columns.append(...next.attempts.map((attempt) => this.rollout(attempt)));
      button.parentElement.replaceWith(this.more() || "");
    });
    return element("p.soft", null, `${last} of ${group.total} rollouts `, button);
  }

  async showTokens(attempt, box, wanted) {
    const panel = box.querySelector(".tokens");
    const show = wanted === undefined ? panel.hidden : wanted;
    panel.hidden = !show;
    box.querySelector(".body").hidden = show;
    const toggle = box.querySelector(".toggle");
    if (toggle) toggle.setAttribute("aria-pressed", String(show));
    if (!show || panel.childElementCount) return;
    const sequences = await this.data.tokens(this.run, this.payload.n, attempt.index);
    panel.replaceChildren(...sequences.map((sequence, i) => tokenView(sequence, i, sequences.length)));
    if (!sequences.length) panel.replaceChildren(element("p.soft", null, "the tokens are not in this file"));
  }

  // Show or hide the tokens of all rollouts.
  toggleTokens(show) {
    this.tokens = show;
    const boxes = this.columns ? [...this.columns.querySelectorAll(".rollout")] : [];
    for (const [i, attempt] of (this.payload.attempts || []).entries()) {
      if (attempt.tokens && boxes[i]) this.showTokens(attempt, boxes[i], show);
    }
  }
}

function signed(value) {
  return (value >= 0 ? "+" : "−") + number(Math.abs(value));
}

// Tokens of a sequence, coloured by their mask; what is known of each shows on hover.
function tokenView(sequence, index, count) {
  const { ids, mask, logprobs, texts, total } = sequence;
  const box = element(texts ? "div.ids.with-text" : "div.ids");
  let group = null;
  for (let i = 0; i < ids.length; i++) {
    if (i === 0 || mask[i] !== mask[i - 1]) {
      group = element(mask[i] === "1" ? "span.trained" : "span.untrained");
      box.append(group);
    }
    const known = logprobs !== null && mask[i] === "1" && logprobs[i] !== null;
    const chance = known ? `, logprob ${logprobs[i]}, probability ${number(Math.exp(logprobs[i]))}` : "";
    const title = `position ${i}, id ${ids[i]}, ${mask[i] === "1" ? "trained" : "not trained"}${chance}`;
    const token = element("span.token", { title });
    if (known && logprobs[i] < -0.7) token.classList.add(logprobs[i] < -2.3 ? "unlikely" : "unsure");
    token.append(texts ? tokenText(texts[i]) : String(ids[i]));
    group.append(token, texts ? (/\n$/.test(texts[i]) ? element("br") : "") : " ");
  }
  const more = total > ids.length ? `, the first ${ids.length.toLocaleString("en")} shown` : "";
  const name = count > 1 ? `sequence ${index + 1} of ${count}, ` : "";
  return element("div", null,
    element("p.soft", null, `${name}${plural(total, "token")}${more}; `, element("span.trained", null, "trained"), " ",
      element("span.untrained", null, "not trained"),
      ...(logprobs ? [" ", element("span.unsure", null, "p < 0.5"), " ", element("span.unlikely", null, "p < 0.1")] : [])),
    box);
}

function tokenText(text) {
  return text === "" ? "·" : shown(text.replace(/\n/g, "⏎"));
}
