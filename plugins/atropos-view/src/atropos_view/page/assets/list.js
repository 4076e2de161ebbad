// The list of groups, of which only the lines in sight are drawn, and the histogram above it.
"use strict";

class LineList {
  // draw(item) makes the content of a line; onEnd is called when the end comes into sight.
  constructor(scroller, list, draw, onEnd) {
    Object.assign(this, { scroller, list, draw, onEnd, items: [], drawn: "" });
    this.height = 0;
    scroller.addEventListener("scroll", () => this.render());
    new ResizeObserver(() => this.render()).observe(scroller);
  }

  show(items) {
    this.items = items;
    this.drawn = "";
    this.render();
  }

  render() {
    this.height = parseFloat(getComputedStyle(this.list).getPropertyValue("--line")) || 60;
    const [height, total] = [this.height, this.items.length];
    const from = Math.max(0, Math.floor(this.scroller.scrollTop / height) - 20);
    const to = Math.min(total, Math.ceil((this.scroller.scrollTop + Math.max(this.scroller.clientHeight, 800)) / height) + 20);
    if (to >= total && this.onEnd) this.onEnd();
    const range = from + "-" + to;
    if (range === this.drawn) return;
    this.drawn = range;
    this.list.style.paddingTop = from * height + "px";
    this.list.style.paddingBottom = (total - to) * height + "px";
    this.list.replaceChildren(...this.items.slice(from, to).map((item, i) => element("li", { "aria-setsize": total, "aria-posinset": from + i + 1 }, this.draw(item))));
  }

  // Bring a line into sight.
  reveal(at) {
    if (at < 0) return;
    const [top, bottom] = [at * this.height, (at + 1) * this.height];
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (bottom > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = bottom - this.scroller.clientHeight;
    this.render();
  }
}

// Bars of rewards; onPick(low, high) is given texts for the fields, empty to take the range away.
function drawHistogram(box, bars, filters, onPick) {
  const total = bars.reduce((sum, bar) => sum + bar.count, 0);
  box.hidden = total === 0;
  if (!total) return;
  const most = bars.reduce((sum, bar) => Math.max(sum, bar.count), 0);
  const columns = bars.map((bar) => {
    if (!bar.count) return element("span.bar");
    const [low, high] = [String(bar.low), String(bar.high)];
    const chosen = filters.low === low && filters.high === high;
    const name = (low === high ? number(bar.low) : `${number(bar.low)} to ${number(bar.high)}`) + ": " + plural(bar.count, "rollout");
    const made = element("button.bar", { type: "button", title: name, "aria-label": name, "aria-pressed": String(chosen),
      onclick: () => (chosen ? onPick("", "") : onPick(low, high)) }, element("i"));
    made.firstChild.style.height = Math.max(4, Math.round((100 * bar.count) / most)) + "%";
    return made;
  });
  const ends = bars.filter((bar) => bar.count);
  const [first, last] = [ends[0], ends[ends.length - 1]];
  box.replaceChildren(element("div.bars", null, ...columns),
    element("div.scale.soft", null, element("span", null, number(first.low)), element("span", null, "reward of " + plural(total, "rollout")),
      element("span", null, first === last ? "" : number(last.high))));
}
