// Asks the service how all stand, every two seconds, and shows it; survives the service's restarts.
"use strict";

const EVERY = 2000; // milliseconds
const element = (id) => document.getElementById(id);
const percent = (ratio) => (100 * ratio).toFixed(1) + " %";
const amount = (value) => String(Math.round(value * 1000) / 1000);
const amounts = (each) =>
  Object.entries(each).filter(([, value]) => value > 0)
    .map(([name, value]) => name + " " + amount(value)).join(", ") || "nothing";

function duration(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return (seconds / size).toFixed(1) + " " + unit;
  }
  return seconds.toFixed(1) + " s";
}

function made(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function write(node, text) { // only what has changed, so that nothing is announced twice
  if (node.textContent !== text) node.textContent = text;
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

function cells(row, texts) {
  texts.forEach((text, index) => write(row.children[index], text));
}

function showCluster(seen) {
  const facts = [
    ["Policy", seen.policy],
    ["Agents", String(seen.agents_known)],
    ["Frameworks", String(seen.frameworks)],
    ["Users", String(seen.users_known)],
    ...Object.entries(seen.capacity).map(([name, total]) => {
      const held = seen.allocation[name] || 0;
      return [name, amount(held) + " of " + amount(total)];
    }),
    ["Store", !seen.store ? "none" : seen.store.degraded ? "degraded" : "works"],
  ];
  keep(element("cluster"), facts, (fact) => fact[0], () => {
    const group = made("div");
    group.append(made("dt"), made("dd"));
    return group;
  }, (group, fact) => cells(group, fact));
}

function showUsers(seen) {
  keep(element("users"), seen.users, (row) => row.user, (row) => {
    const line = made("tr");
    const head = made("th", undefined, { scope: "row" });
    const ask = made("button", row.user, { type: "button" });
    ask.addEventListener("click", () => explain(row.user));
    head.append(ask);
    line.append(made("td"), head);
    for (let column = 0; column < 7; column += 1) line.append(made("td"));
    return line;
  }, (line, row) => {
    line.className = row.wants ? "" : "idle";
    const numbers = [row.share, row.entitlement, row.commitment, row.shortfall].map(percent);
    numbers.push(row.priority.toFixed(4), amount(row.weight), row.kept_by);
    write(line.children[0], (row.parent ? "· " : "") + row.rank);
    numbers.forEach((text, index) => write(line.children[index + 2], text));
  });
}

function showOvertakings(seen) {
  const list = seen.overtakings.length
    ? seen.overtakings.map((each) => each.passing + " may pass " + each.passed + " in " + duration(each.after))
    : ["None is foretold."];
  keep(element("overtakings"), list.map((text, index) => ({ text, index })), (each) => each.index,
    () => made("li"), (line, each) => write(line, each.text));
}

function path(times, values, top) {
  const from = times[0];
  const span = times[times.length - 1] - from || 1;
  const points = values.map((value, index) =>
    ((times[index] - from) / span * 300).toFixed(1) + "," + (98 - value / top * 96).toFixed(1));
  return points.length ? "M" + points.join("L") : "";
}

function drawing(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function showPast(seen) {
  const times = seen.past.times;
  keep(element("past"), Object.entries(seen.past.users), ([user]) => user, ([user]) => {
    const figure = made("div");
    const chart = drawing("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img" });
    chart.append(drawing("path", { class: "share" }), drawing("path", { class: "commitment" }));
    const legend = made("p");
    legend.append(made("span", undefined, { class: "share-key" }), " ", made("span", undefined, { class: "debt-key" }));
    figure.append(made("h3", user), chart, legend);
    return figure;
  }, (figure, [user, lines]) => {
    const top = Math.max(0.05, ...lines.share, ...lines.commitment);
    const [, chart, legend] = figure.children;
    chart.children[0].setAttribute("d", path(times, lines.share, top));
    chart.children[1].setAttribute("d", path(times, lines.commitment, top));
    const since = duration(times.length ? times[times.length - 1] - times[0] : 0);
    const [share, debt] = [lines.share, lines.commitment].map((line) => percent(line.at(-1) || 0));
    chart.setAttribute("aria-label",
      user + " over " + since + ": share " + share + " now, commitment " + debt + " now, scale up to " + percent(top));
    write(legend.children[0], "solid: share, " + share + ";");
    write(legend.children[1], "dashed: commitment, " + debt + ". Over " + since + ", up to " + percent(top) + ".");
  });
}

function showOffers(seen) {
  const list = seen.offers.map((offer, index) => ({ ...offer, index }));
  keep(element("offers"), list, (offer) => offer.index, () => {
    const line = made("li");
    line.append(made("span"), made("br"), made("small"));
    return line;
  }, (line, offer) => {
    const when = new Date(offer.time * 1000).toLocaleTimeString();
    write(line.children[0], when + ": " + offer.host + " to " + offer.user + " (" + offer.framework + "): " + amounts(offer.resources));
    write(line.children[2], offer.why);
  });
}

function showAgents(seen) {
  keep(element("agents"), seen.agents, (place) => place.agent, () => {
    const line = made("tr");
    line.append(made("th", undefined, { scope: "row" }), made("td"), made("td"), made("td"));
    return line;
  }, (line, place) => {
    const held = Object.entries(place.held).map(([user, what]) => user + ": " + amounts(what)).join("; ");
    const state = place.state === "offered" ? "goes to whoever is next and can use it" : place.state;
    cells(line, [place.host, state, amounts(place.free), held || "nobody"]);
  });
}

let explained = null;

async function explain(user) {
  explained = user;
  let text = "The service does not answer.";
  try {
    const answer = await fetch("api/explain?user=" + encodeURIComponent(user));
    const told = await answer.json();
    text = told.words
      ? "As of " + new Date().toLocaleTimeString() + ": " + told.words.join(" ") : told.error;
  } catch { /* told above, and by the line under the title */ }
  if (explained === user) write(element("why"), text);
}

function show(seen) {
  const state = element("connection");
  state.className = seen.connected ? "good" : "bad";
  write(state, seen.connected ? "A leading master is connected." : "No leading master is connected: nobody gets offers.");
  showCluster(seen);
  showUsers(seen);
  showOvertakings(seen);
  showPast(seen);
  showOffers(seen);
  showAgents(seen);
  const shown = seen.users.length < seen.users_known || seen.agents.length < seen.agents_known
    ? " Of users and agents the first " + seen.users.length + " and " + seen.agents.length + " are shown." : "";
  write(element("about"), "Longshare " + seen.version + ". Read-only; updates itself." + shown);
}

async function look() {
  try {
    const answer = await fetch("api/status", { cache: "no-store" });
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    show(await answer.json());
    document.body.classList.remove("stale");
  } catch {
    document.body.classList.add("stale");
    const state = element("connection");
    state.className = "bad";
    write(state, "The service does not answer; what is shown is old. Trying again…");
  }
  setTimeout(look, EVERY);
}

look();
