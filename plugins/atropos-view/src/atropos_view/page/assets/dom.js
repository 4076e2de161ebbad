// Elements from data. Every text goes in by textContent: nothing here ever parses markup.
"use strict";

// Control characters, marks that turn the direction of text or cannot be seen, and lone halves of characters.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

// element("p.note", {title: "x"}, "text", child, ...)
function element(kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  for (const name of classes) made.classList.add(name);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A stranger's text in an element of its own direction; what cannot be seen is shown by its code, what is looked
// for is marked.
function shown(text, needle) {
  const box = element("bdi.text");
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(ODD)) {
    parts.push([text.slice(from, found.index), false], [found[0], true]);
    from = found.index + found[0].length;
  }
  parts.push([text.slice(from), false]);
  for (const [part, odd] of parts) {
    if (odd) box.append(element("span.odd", { title: "a character that cannot be seen" }, code(part)));
    else if (part) box.append(...marked(part, needle));
  }
  return box;
}

function code(char) {
  return "U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

function marked(text, needle) {
  if (!needle) return [document.createTextNode(text)];
  const nodes = [];
  const lower = text.toLowerCase();
  const wanted = needle.toLowerCase();
  if (lower.length !== text.length) return [document.createTextNode(text)]; // places would not agree
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    nodes.push(document.createTextNode(text.slice(from, at)), element("mark", null, text.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  nodes.push(document.createTextNode(text.slice(from)));
  return nodes;
}

// One line of a stranger's text.
function line(text, needle) {
  return shown(String(text).replace(/[\n\t\r]+/g, " "), needle);
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(4)));
}

function plural(count, noun) {
  return count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
}

// Colours of rewards: from orange over grey to teal, told apart by most eyes. The range is [0, 1], or wider where
// rewards are.
const ranges = new Map();

function learnRange(env, scores) {
  const range = ranges.get(env) || { low: 0, high: 1 };
  for (const score of scores) {
    if (score === null) continue;
    range.low = Math.min(range.low, score);
    range.high = Math.max(range.high, score);
  }
  ranges.set(env, range);
}

function rewardColor(env, score) {
  const range = ranges.get(env) || { low: 0, high: 1 };
  const share = (score - range.low) / (range.high - range.low || 1);
  const strength = Math.round(Math.abs(share - 0.5) * 2 * 75);
  return share < 0.5 ? `hsl(22 ${strength}% 52%)` : `hsl(176 ${strength}% 38%)`;
}

function square(env, score, failed) {
  const made = element(failed ? "i.square.failed" : "i.square");
  if (score !== null) made.style.background = rewardColor(env, score);
  return made;
}
