// Reads the status every two seconds and shows it; keeps trying while the service restarts.
"use strict";

const EVERY = 2000; // milliseconds
const users = new Users();
let latest = null;
const agents = new Pages("agents", PAGE, () => latest && showAgents(latest));

function showCluster(seen) {
  const half = seen.half_life === null ? "no memory" : "half-life " + duration(seen.half_life);
  write(element("policy"), [seen.policy, half, "version " + seen.version].join(" · "));
  write(element("clock"), seen.time ? new Date(seen.time * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "");
  const facts = [
    ...Object.entries(seen.capacity).map(([name, total]) => {
      const held = seen.allocation[name] || 0;
      return [name, amount(held) + " of " + amount(total) + " held"];
    }),
    [seen.words.machines, String(seen.agents_known)],
    [seen.words.applications, String(seen.frameworks)],
    ["users", String(seen.users_known)],
    ["store", !seen.store ? "none" : seen.store.degraded ? "degraded" : seen.store.left_out ? "full" : "works"],
  ];
  keep(element("cluster"), facts, (fact) => fact[0], () => {
    const group = made("div");
    group.append(made("dt"), made("dd"));
    return group;
  }, (group, fact) => fact.forEach((text, index) => write(group.children[index], text)));
}

function showOvertakings(seen) {
  const list = seen.overtakings.length
    ? seen.overtakings.map((each) => each.passing + " may overtake " + each.passed + " in " + duration(each.after))
    : ["No user will overtake another while allocations do not change."];
  keep(element("overtakings"), list.map((text, index) => ({ text, index })), (each) => each.index,
    () => made("li"), (line, each) => write(line, each.text));
}

const MOST_APART = 20; // users shown for each shadow: the largest gains and losses
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
    part.append(made("h3", shadow.name), made("p"), table);
    return part;
  }, (part, shadow) => {
    const apart = shadow.users.filter((each) => each.turn !== each.shadow_turn || Math.abs(each.gain) >= NO_GAIN);
    const shown = [...apart].sort((one, other) => Math.abs(other.gain) - Math.abs(one.gain)).slice(0, MOST_APART);
    write(part.children[1], shadow.failure ? "The service has stopped this shadow policy: " + shadow.failure
      : apart.length ? apart.length + " of " + shadow.users.length + " users have another rank under this policy, or a gain or loss." +
        (shown.length < apart.length ? " The table lists the " + shown.length + " users with the largest gains and losses." : "")
      : "Each user has the same rank under this policy, and no gain or loss.");
    part.children[2].hidden = !shown.length;
    keep(part.children[2].children[1], shown, (each) => each.user, () => {
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

function showOffers(seen) {
  write(element("offers-heading"), seen.words.trail);
  const list = seen.offers.map((offer, index) => ({ ...offer, index }));
  keep(element("offers"), list, (offer) => offer.index, () => {
    const line = made("li");
    line.append(made("span"), made("br"), made("small"));
    return line;
  }, (line, offer) => {
    write(line.children[0], clock(offer.time) + ": " + legible(offer.host) + " to " + legible(offer.user) + " (" + legible(offer.framework) + "): " + amounts(offer.resources));
    write(line.children[2], offer.why);
  });
}

function showAgents(seen) {
  const machines = seen.words.machines;
  write(element("agents-heading"), machines[0].toUpperCase() + machines.slice(1));
  element("agents-part").hidden = seen.agents_known > 0 && !seen.agents.length; // not told one by one
  const alike = new Map(); // one line for all agents with the same state and resources
  for (const { agent, host, ...rest } of seen.agents) {
    const key = JSON.stringify(rest);
    if (!alike.has(key)) alike.set(key, { agent, host, ...rest, more: -1 });
    alike.get(key).more += 1;
  }
  const lines = [...alike.values()];
  const shown = agents.of(lines, lines.length, lines.length + seen.agents_known - seen.agents.length);
  keep(element("agents"), shown, (place) => place.agent, () => {
    const line = made("tr");
    line.append(made("th", undefined, { scope: "row" }), made("td"), made("td"), made("td"));
    return line;
  }, (line, place) => {
    const held = Object.entries(place.held).map(([user, what]) => legible(user) + ": " + amounts(what)).join("; ");
    const state = place.state === "offered" ? "offered to the next user that can use it" : place.state;
    [legible(place.host) + (place.more ? " and " + place.more + " more like it" : ""), state, amounts(place.free), held || "none"].forEach((text, index) => write(line.children[index], text));
  });
}

function show(seen) {
  latest = seen;
  const state = element("connection");
  state.className = seen.connected ? "good" : "bad";
  write(state, seen.connected ? seen.words.connected : seen.words.disconnected);
  showCluster(seen);
  users.update(seen);
  showOvertakings(seen);
  showOffers(seen);
  showShadows(seen);
  showAgents(seen);
  write(element("about"), "This page only shows, and updates itself. All times are " + seen.words.clock + ", in UTC. The commands longshare shares and longshare explain USER show the same.");
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
    write(state, "The service does not answer, so this page is out of date. Trying again…");
  }
  setTimeout(look, EVERY);
}

look();
