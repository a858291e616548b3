// Shared functions: formatting, DOM nodes that survive updates, pages of a table.
"use strict";

const NARROW = matchMedia("(max-width: 62rem)").matches;
const PAGE = NARROW ? 5 : 25; // rows at a time
const element = (id) => document.getElementById(id);
const percent = (ratio) => { // two decimals below one percent
  const hundredths = 100 * ratio;
  return hundredths.toFixed(hundredths >= 0.005 && hundredths < 1 ? 2 : 1) + "\u00a0%";
};
const thousandths = (value) => Math.round(value * 1000) / 1000;
// Tenants choose names, such as "constructor". A look-up by name must not find an inherited property.
const named = (map, name) => (Object.hasOwn(map, name) ? map[name] : undefined);
const byName = (map = {}) => ({ __proto__: null, ...map });
const amount = (value) => value.toLocaleString("en", { maximumFractionDigits: 3 });
const UNITS = { mem: "\u00a0MB", disk: "\u00a0MB" }; // other resources are counted
const amounts = (each) =>
  Object.entries(each).filter(([, value]) => value > 0)
    .map(([name, value]) => name + " " + amount(value) + (named(UNITS, name) || "")).join(", ") || "nothing";
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19) + " UTC";
const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

function duration(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return Number((seconds / size).toFixed(1)) + "\u00a0" + unit;
  }
  return Number(seconds.toFixed(1)) + "\u00a0s";
}

// Frameworks choose names, so invisible characters and stacked accents are shown as escapes.
const UNSEEN = /[\p{Default_Ignorable_Code_Point}\p{Cc}\u2028\u2029\u2800\ufff9-\ufffb]/gu;
const escaped = (text) => Array.from(text, (each) => "\\u{" + each.codePointAt(0).toString(16) + "}").join("");
const legible = (name) => name.replace(UNSEEN, escaped).replace(/^\p{M}+/u, escaped)
  .replace(/(?<=[\p{Mn}\p{Me}]{4})[\p{Mn}\p{Me}]+/gu, escaped);

function made(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function drawing(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function write(node, text) { // writes only changes, so that screen readers announce nothing twice
  if (node.textContent !== text) node.textContent = text;
}

function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Keeps one child for each key, in order, so that focus and selection survive an update.
function keep(parent, items, key, create, update) {
  const present = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = present.get(name);
    present.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of present.values()) child.remove();
}

// Fills a list of choices, and keeps the present choice.
function choose(select, choices) {
  keep(select, choices, ([value]) => value, ([value]) => made("option", undefined, { value }), (option, [, text]) => write(option, text));
}

// Shows one page of a list at a time.
class Pages {
  constructor(name, size, changed) {
    this.size = size;
    this.first = 0;
    this.shown = element(name + "-shown");
    this.back = element(name + "-back");
    this.forth = element(name + "-forth");
    this.back.addEventListener("click", () => this.go(this.first - size, changed));
    this.forth.addEventListener("click", () => this.go(this.first + size, changed));
  }

  go(first, changed) {
    this.first = Math.max(first, 0);
    changed();
  }

  of(list, all, known, noun = "") {
    while (this.first >= list.length && this.first > 0) this.first = Math.max(this.first - this.size, 0);
    const part = list.slice(this.first, this.first + this.size);
    const found = list.length === all ? "" : " found of " + all;
    const beyond = known > all ? " (only " + amount(all) + " of " + amount(known) + " are listed)" : "";
    this.shown.hidden = list.length === all && all === known && all <= this.size; // the line is unnecessary if the page shows the whole list
    write(this.shown, (part.length ? this.first + 1 + "–" + (this.first + part.length) + " of " + list.length + noun : "none") + found + beyond);
    this.back.disabled = this.first === 0;
    this.forth.disabled = this.first + this.size >= list.length;
    this.back.hidden = this.forth.hidden = list.length <= this.size;
    return part;
  }
}
