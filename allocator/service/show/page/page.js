// Reads the status every two seconds and shows it; keeps trying while the service restarts.
"use strict";

const EVERY = 2000; // milliseconds
const users = new Users();
let latest = null;
let allOffers = false;
const agents = new Pages("agents", PAGE, () => latest && showAgents(latest));

function showCluster(seen) {
  const half = seen.half_life === null ? "no memory" : "half-life " + duration(seen.half_life);
  write(element("policy"), [seen.policy, half, "version " + seen.version].join(" · "));
  write(element("clock"), seen.time ? new Date(seen.time * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "");
  const facts = [
    ...Object.entries(seen.capacity).map(([name, total]) => {
      const held = named(seen.allocation, name) || 0;
      return [name, amount(held) + " of " + amount(total) + (named(UNITS, name) || "") + " held"];
    }),
    [seen.words.machines, amount(seen.agents_known)],
    [seen.words.applications, amount(seen.frameworks)],
    ["users", amount(seen.users_known)],
    ["store", !seen.store ? "none" : seen.store.degraded ? "degraded" : seen.store.left_out ? "full" : "works"],
  ];
  keep(element("cluster"), facts, (fact) => fact[0], () => {
    const group = made("div");
    group.append(made("dt"), made("dd"));
    return group;
  }, (group, fact) => fact.forEach((text, index) => write(group.children[index], text)));
}

// The first user in the order that wants offers and that an agent can serve; below it, the first such child.
function nextUser(users, parent) {
  const user = users.find((row) => row.parent === parent && row.wants && !row.passed_over);
  return (user && nextUser(users, user.user)) || user;
}

function showNext(seen) {
  const next = nextUser(seen.users, "") || nextUser(seen.users, null);
  write(element("next"), !next ? "No user can take an offer now."
    : legible(next.user) + " is next, with rank " + next.rank + (next.kept_by ? " (" + next.kept_by + ")" : "") + ".");
  element("no-overtaking").hidden = seen.overtakings.length > 0;
  element("overtakings").hidden = !seen.overtakings.length;
  const list = seen.overtakings.map((each, index) => ({
    text: legible(each.passing) + " may overtake " + legible(each.passed) + " in " + duration(each.after), index,
  }));
  keep(element("overtakings"), list, (each) => each.index, () => made("li"), (line, each) => write(line, each.text));
}

const MOST_APART = NARROW ? 5 : 20; // users shown for each shadow: the largest gains and losses
const NO_GAIN = 0.0036; // seconds of the whole cluster: a millionth of an hour

function gained(seconds) {
  const hours = Math.abs(seconds) < NO_GAIN ? 0 : Math.abs(seconds / 3600);
  return (hours ? seconds < 0 ? "−" : "+" : "") + (hours && hours < 0.1 ? hours.toPrecision(2) : hours.toFixed(3));
}

function showShadows(seen) {
  element("shadows-part").hidden = !seen.shadows.length;
  keep(element("shadows"), seen.shadows, (shadow) => shadow.name, (shadow) => {
    const part = made("div");
    const table = made("table");
    const head = made("tr");
    for (const heading of ["turn", "as decided", "user", "commit\u00adment", "gain, h"]) head.append(made("th", heading, { scope: "col" }));
    const top = made("thead");
    top.append(head);
    table.append(top, made("tbody"));
    const list = made("details");
    list.open = !NARROW;
    list.append(made("summary", "Largest gains and losses"), made("p", "A turn is the place among the users that want offers. A gain is additional usage until now, in hours of the whole cluster."), table);
    part.append(made("h3", shadow.name), made("p"), list);
    return part;
  }, (part, shadow) => {
    const apart = shadow.users.filter((each) => each.turn !== each.shadow_turn || Math.abs(each.gain) >= NO_GAIN);
    const shown = [...apart].sort((one, other) => Math.abs(other.gain) - Math.abs(one.gain)).slice(0, MOST_APART);
    write(part.children[1], shadow.failure ? "The service has stopped this shadow policy: " + shadow.failure
      : apart.length ? apart.length + " of " + shadow.users.length + " users have another turn under this policy, or a gain or loss."
      : "Each user has the same turn under this policy, and no gain or loss.");
    part.children[2].hidden = !shown.length;
    keep(part.querySelector("tbody"), shown, (each) => each.user, () => {
      const line = made("tr");
      line.append(made("td"), made("td"), made("th", undefined, { scope: "row" }), made("td"), made("td"));
      return line;
    }, (line, each) => [
      each.shadow_turn || "–", each.turn || "–", legible(each.user), percent(each.commitment), gained(each.gain),
    ].forEach((text, index) => {
      write(line.children[index], String(text));
      set(line.children[index], "title", String(text)); // a long name is cut short
    }));
  });
}

const FEW_OFFERS = 1; // offers shown on a phone before a reader asks for all

function showOffers(seen) {
  write(element("offers-heading"), seen.words.trail);
  const shown = NARROW && !allOffers ? seen.offers.slice(0, FEW_OFFERS) : seen.offers;
  write(element("offers-all"), "Show all " + seen.offers.length);
  element("offers-all").hidden = shown.length === seen.offers.length;
  const list = shown.map((offer, index) => ({ ...offer, index }));
  keep(element("offers"), list, (offer) => offer.index, () => {
    const line = made("li");
    line.append(made("span"), made("br"), made("small"));
    return line;
  }, (line, offer) => {
    write(line.children[0], clock(offer.time) + ": " + legible(offer.host) + " to " + legible(offer.user) + " (" + legible(offer.framework) + "): " + amounts(offer.resources));
    write(line.children[2], offer.why);
  });
}

const MOST_HOLDERS = 3; // users named in the line of many agents
const others = (number) => number + (number === 1 ? " more user" : " more users");

// One line for all agents with the same key; `add` adds an agent to the line of the first.
function summaries(all, key, add) {
  const lines = new Map();
  for (const agent of all) {
    const name = key(agent);
    lines.set(name, lines.has(name) ? { ...add(lines.get(name), agent), more: lines.get(name).more + 1 } : { ...agent, more: 0 });
  }
  return [...lines.values()];
}

function sum(one, other) {
  const total = byName(one);
  for (const [name, value] of Object.entries(other)) total[name] = (total[name] || 0) + value;
  return total;
}

function addAgent(line, agent) {
  const held = byName(line.held);
  for (const [user, amount] of Object.entries(agent.held)) held[user] = sum(held[user] || {}, amount);
  return { ...line, free: sum(line.free, agent.free), held };
}

function showAgents(seen) {
  const machines = seen.words.machines;
  write(element("agents-heading"), machines[0].toUpperCase() + machines.slice(1));
  element("agents-part").hidden = seen.agents_known > 0 && !seen.agents.length; // the status has no list of agents
  const equal = summaries(seen.agents, ({ agent, host, ...rest }) => JSON.stringify(rest), (total) => total);
  const alike = summaries(seen.agents, ({ state, total }) => JSON.stringify([state, total]), addAgent);
  element("agents-alike-part").hidden = equal.length <= PAGE || alike.length === equal.length;
  const lines = !element("agents-alike-part").hidden && element("agents-alike").checked ? alike : equal;
  const noun = lines.length === seen.agents.length ? "" : lines.length === 1 ? " group" : " groups";
  const shown = agents.of(lines, lines.length, lines.length, noun);
  const unlisted = seen.agents_known - seen.agents.length;
  element("agents-unlisted").hidden = !unlisted;
  write(element("agents-unlisted"), "Only the first " + amount(seen.agents.length) + " of " + amount(seen.agents_known) + " " + machines + " are listed.");
  keep(element("agents"), shown, (place) => place.agent, () => {
    const line = made("tr");
    line.append(made("th", undefined, { scope: "row" }), made("td"), made("td", undefined, { "data-heading": "free" }), made("td", undefined, { "data-heading": "held" }));
    return line;
  }, (line, place) => {
    const holders = Object.entries(place.held);
    if (lines === alike) holders.sort(([, one], [, other]) => Object.values(other)[0] - Object.values(one)[0]);
    const held = holders.slice(0, lines === alike ? MOST_HOLDERS : Infinity).map(([user, what]) => legible(user) + ": " + amounts(what)).join("; ") +
      (lines === alike && holders.length > MOST_HOLDERS ? "; and " + others(holders.length - MOST_HOLDERS) : "");
    const scope = !place.more ? "" : lines === alike ? "in all: " : "each: "; // the amounts are sums of the group, or those of one agent
    const state = place.state === "offered" ? "offered to the next user that can use it" : place.state;
    [legible(place.host) + (place.more ? " and " + place.more + " more like it" : ""), state, (Object.values(place.free).some((value) => value > 0) ? scope : "") + amounts(place.free), held ? scope + held : "none"].forEach((text, index) => write(line.children[index], text));
  });
}

function show(seen) {
  latest = seen;
  const state = element("connection");
  state.className = seen.connected ? "good" : "bad";
  write(state, seen.connected ? seen.words.connected : seen.words.disconnected);
  showCluster(seen);
  for (const [part, items] of [["next", seen.users], ["users", seen.users], ["offers", seen.offers], ["agents", seen.agents]]) {
    element(part + "-part").classList.toggle("empty", !items.length);
  }
  users.update(seen);
  showNext(seen);
  showOffers(seen);
  showShadows(seen);
  showAgents(seen);
  write(element("about"), "This page updates itself and changes nothing. All times are " + seen.words.clock + ", in UTC. longshare shares and longshare explain USER show the same.");
}

element("agents-alike").addEventListener("change", () => latest && agents.go(0, () => showAgents(latest)));

element("offers-all").addEventListener("click", () => {
  allOffers = true;
  element("offers").focus();
  if (latest) showOffers(latest);
});

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
    write(state, "The service does not answer, so this page is out of date. Trying again…");
  }
  setTimeout(look, EVERY);
}

look();
