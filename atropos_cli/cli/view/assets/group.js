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
    learnRange(group.env, group.rollouts.map((rollout) => rollout.score));
    this.columns = element(group.rollouts.length > 1 ? "div.rollouts" : "div.rollouts.single", null, ...group.rollouts.map((rollout) => this.rollout(rollout)));
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
      ...messages.map((message) => this.message(message, this.payload.rollouts.length ? this.payload.rollouts[0].index : -1)));
  }

  rollout(rollout) {
    const group = this.payload;
    const box = element("article.rollout", { "data-index": rollout.index, tabindex: -1 });
    const tokens = element("div.tokens", { hidden: true });
    const body = element("div.body", null,
      ...rollout.messages.map((message) => this.message(message, rollout.index)),
      rollout.more ? element("p.soft", null, plural(rollout.more, "more message") + " not shown") : null);
    const toggle = rollout.tokens
      ? element("button.toggle", { type: "button", "aria-pressed": "false", onclick: () => this.showTokens(rollout, box) }, "Tokens")
      : null;
    box.append(element("header", null,
      element("div.score", null,
        square(group.env, rollout.failure ? null : rollout.score, Boolean(rollout.failure)),
        element("strong", null, rollout.failure ? "failed" : number(rollout.score)),
        rollout.advantage !== null ? element("span.soft", { title: "advantage" }, " " + signed(rollout.advantage)) : null,
        element("span.index", null, "#" + rollout.index), toggle),
      this.chips(rollout)));
    if (rollout.failure) {
      const failure = rollout.failure;
      box.append(element("p.problem", null, line(failure.stage + ": " + failure.type), element("br"), shown(failure.message)));
    }
    box.append(body, tokens);
    if (this.tokens && rollout.tokens) this.showTokens(rollout, box);
    return box;
  }

  // Values of 0 say nothing in a row of twenty: their names are in the title of the last chip.
  chips(rollout) {
    const list = element("ul.chips");
    const zeros = [];
    const chip = (kind, title, ...content) => list.append(element(kind, { title }, ...content));
    if (rollout.label) chip("li", null, line(rollout.label));
    const reason = rollout.stop || rollout.finish;
    if (reason) chip(rollout.truncated ? "li.cut" : "li", "stop reason", line(reason));
    for (const [kind, values] of [["li", rollout.rewards], ["li.metric", rollout.metrics]]) {
      for (const [name, value] of Object.entries(values)) {
        if (value === 0) zeros.push(name);
        else chip(kind, kind === "li" ? "reward" : "metric", line(name), element("b", null, number(value)));
      }
    }
    if (rollout.tokens) {
      const { total, trained, logprobs } = rollout.tokens;
      chip("li.metric", logprobs ? "with log probabilities" : "without log probabilities", `${trained.toLocaleString("en")} of ${plural(total, "token")} trained`);
    }
    if (zeros.length) list.title = "0: " + zeros.join(", ").replace(ODD, "?");
    return list;
  }

  message(message, rollout) {
    return new MessageView(message, rollout, this).render();
  }

  more() {
    const group = this.payload;
    const last = group.first + group.rollouts.length;
    if (last >= group.total) return null;
    const button = element("button", { type: "button" }, "More");
    button.addEventListener("click", async () => {
      button.disabled = true;
      const next = await this.data.group(this.run, group.n, last);
      if (next.first !== last) return; // a file holds only the first ones
      group.rollouts.push(...next.rollouts);
      this.columns.append(...next.rollouts.map((rollout) => this.rollout(rollout)));
      button.parentElement.replaceWith(this.more() || "");
    });
    return element("p.soft", null, `${last} of ${group.total} rollouts `, button);
  }

  async showTokens(rollout, box, wanted) {
    const panel = box.querySelector(".tokens");
    const show = wanted === undefined ? panel.hidden : wanted;
    panel.hidden = !show;
    box.querySelector(".body").hidden = show;
    const toggle = box.querySelector(".toggle");
    if (toggle) toggle.setAttribute("aria-pressed", String(show));
    if (!show || panel.childElementCount) return;
    const sequences = await this.data.tokens(this.run, this.payload.n, rollout.index);
    panel.replaceChildren(...sequences.map((sequence, i) => tokenView(sequence, i, sequences.length)));
    if (!sequences.length) panel.replaceChildren(element("p.soft", null, "the tokens are not in this file"));
  }

  // Show or hide the tokens of all rollouts.
  toggleTokens(show) {
    this.tokens = show;
    const boxes = this.columns ? [...this.columns.querySelectorAll(".rollout")] : [];
    for (const [i, rollout] of (this.payload.rollouts || []).entries()) {
      if (rollout.tokens && boxes[i]) this.showTokens(rollout, boxes[i], show);
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
