// One message: its parts drawn as what they are. What is long is folded, what is looked for is open.
"use strict";

const FOLD = 700;

class MessageView {
  // owner: the GroupView, for its data and what is searched.
  constructor(message, rollout, owner) {
    Object.assign(this, { message, rollout, owner, needle: owner.needle });
  }

  render() {
    const { message } = this;
    const box = element("div.message." + message.role);
    const extra = [message.weight !== undefined ? "weight " + message.weight : null];
    const named = message.name ? element("span.name", null, line(message.name)) : null;
    const ident = message.tool_call_id && !message.name ? element("span.soft", null, line(message.tool_call_id)) : null;
    box.append(element("h3", null, message.role === "tool" ? "tool result" : message.role, named, ident,
      ...extra.filter(Boolean).map((text) => element("span.soft", null, text))));
    for (const [number, part] of message.parts.entries()) box.append(...this.part(part, number).filter(Boolean));
    if (!message.parts.length) box.append(element("p.soft", null, "(empty)"));
    return box;
  }

  part(part, number) {
    if (part.kind === "image") return [this.image(part)];
    if (part.kind === "call") return [this.call(part, number)];
    if (part.kind === "text") {
      const { role } = this.message;
      const whole = this.text(part, number, "pre");
      if ((role === "system" || role === "developer") && part.text.length > 1500) return [this.folded("instructions", "instructions", part, whole)];
      return whole;
    }
    const whole = this.text(part, number, part.kind === "thinking" || part.kind === "memory" ? "pre.prose" : "pre");
    if (part.kind === "result") return this.message.role === "tool" && part.text.length <= FOLD ? whole : [this.folded("result", "result", part, whole)];
    return [this.folded(part.kind, part.kind === "other" ? part.name || "other" : part.kind, part, whole)];
  }

  // A text and the button for its rest.
  text(part, number, kind) {
    const box = element(kind, null, shown(part.text, this.needle));
    if (!part.text) box.append(element("span.soft", null, "(empty)"));
    return [box, this.rest(part, number, box)];
  }

  folded(kind, name, part, content) {
    const size = part.cut || (part.text || "").length;
    return element("details.part." + kind, { open: size <= FOLD || this.has(part) },
      element("summary", null, element("span.kind", null, line(name)), size > FOLD ? element("span.soft", null, plural(size, "character")) : null),
      ...content.filter(Boolean));
  }

  has(part) {
    if (!this.needle) return false;
    const texts = [part.name, part.text, ...(part.arguments || []).flat()];
    return texts.some((text) => text && text.toLowerCase().includes(this.needle.toLowerCase()));
  }

  call(part, number) {
    const given = part.arguments;
    const size = given ? given.reduce((sum, [name, value]) => sum + name.length + value.length, 0) : part.cut || part.text.length;
    const summary = element("summary", null, element("span.kind", null, "call"), element("span.name", null, line(part.name || "?", this.needle)));
    if (part.fault) summary.append(element("span.fault", null, "cannot be read: " + part.fault.replaceAll("_", " ")));
    else if (given && !given.length) summary.append(element("span.soft", null, "no arguments"));
    else if (size > FOLD) summary.append(element("span.soft", null, plural(size, "character")));
    const box = element("details.part.call", { open: size <= FOLD || this.has(part) }, summary);
    if (given) {
      if (given.length) box.append(element("dl.arguments", null, ...given.map(([name, value]) => element("div", null,
        element("dt", null, line(name, this.needle)), element("dd", null, element("pre", null, shown(value, this.needle)))))));
    } else {
      box.append(...this.text(part, number, "pre").filter(Boolean));
    }
    return box;
  }

  image(part) {
    if (part.src && /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(part.src)) {
      const picture = element("img", { src: part.src, alt: part.note, loading: "lazy", decoding: "async" });
      return element("figure", null, picture, element("figcaption.soft", null, line(part.note)));
    }
    if (part.href && /^https?:\/\//i.test(part.href)) {
      return element("p.soft", null, "image, not loaded: ",
        element("a", { href: part.href, rel: "noreferrer noopener", target: "_blank" }, line(part.href)));
    }
    return element("p.soft", null, line(part.note || "image"));
  }

  // A button that fetches the whole of a text that was cut.
  rest(part, number, target) {
    if (!part.cut) return null;
    const label = `the first ${part.text.length.toLocaleString("en")} of ${part.cut.toLocaleString("en")} characters`;
    const note = element("p.soft", null, label + " ");
    const button = element("button", { type: "button" }, "Show all");
    button.addEventListener("click", async () => {
      let text = null;
      try {
        text = await this.owner.data.message(this.owner.run, this.owner.payload.n, this.rollout, this.message.i, number);
      } catch (error) {
        note.textContent = error.message;
        return;
      }
      if (text === null) {
        note.textContent = label + "; the rest is not in this file";
        return;
      }
      target.replaceChildren(shown(text, this.needle));
      note.remove();
    });
    note.append(button);
    return note;
  }
}
