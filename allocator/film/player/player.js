// Plays a film of a cluster: reads the data inside this file, and loads nothing else.
"use strict";

const LENGTH = 40; // duration of the whole film at speed 1, in seconds
const COLOURS = 7; // further users share one colour
const THIN = 40; // lines drawn for users without a colour of their own
const [SHARE, DEBT, FAIR, TURN, WAITS, HELD] = [0, 1, 2, 3, 4, 5]; // columns of a user's data
const element = (id) => document.getElementById(id);
const percent = (parts) => (parts / 100).toFixed(1) + "\u00a0%";
const clamp = (value, most) => Math.min(Math.max(value, 0), most);

function duration(seconds) {
  const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]].find(([, each]) => seconds >= each) || ["s", 1];
  return Number((seconds / size).toFixed(1)) + "\u00a0" + unit;
}

function made(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function drawn(parent, name, d) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "path");
  if (name) node.setAttribute("class", name);
  if (d) node.setAttribute("d", d);
  parent.append(node);
  return node;
}

function sums(differences) {
  let value = 0;
  return Float64Array.from(differences, (each) => (value += each));
}

async function unpacked() {
  const bytes = Uint8Array.from(atob(element("data").textContent.trim()), (each) => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Film {
  constructor(data) {
    Object.assign(this, data);
    this.times = sums(data.times);
    this.frames = this.times.length;
    this.lines = data.lines.map((columns) => columns.map(sums)); // user, column, frame
    const agents = data.agents.length;
    this.grid = new Uint32Array(this.frames * agents); // each frame's cells
    data.changes.forEach((row, frame) => {
      const at = frame * agents;
      if (frame) this.grid.copyWithin(at, at - agents, at);
      for (let place = 0, each = 0; each < row.length; each += 2, place += 1) {
        place += row[each];
        this.grid[at + place] = row[each + 1];
      }
    });
    this.order = data.users.map((_, user) => user);
  }

  is(user, frame) { return this.lines[user][SHARE][frame] >= 0; }
  of(user, column, frame) { return this.lines[user][column][frame]; }
  cell(agent, frame) {
    const number = this.grid[frame * this.agents.length + agent];
    return number ? this.cells[number - 1] : null;
  }

  amounts(vector) {
    return this.resources.map((name, place) => [name, vector[place]]).filter(([, amount]) => amount)
      .map(([name, amount]) => name + " " + (amount / 1000).toLocaleString("en", { maximumFractionDigits: 3 }))
      .join(", ") || "nothing";
  }

  most(column) {
    let most = 0;
    for (const columns of this.lines) for (const value of columns[column]) if (value > most) most = value;
    return most;
  }

  // Users of one level in their order; users that want no offers come last.
  ranked(frame) {
    const key = (user) => (this.is(user, frame) ? this.of(user, TURN, frame) || 1e6 : 1e9);
    return this.order.slice().sort((a, b) => key(a) - key(b) || a - b);
  }
}

// A cell shows the agent's resource with the largest held fraction, filled from below.
function fill(cell) {
  const [, total, parts] = cell;
  let resource = 0;
  let most = -1;
  total.forEach((amount, place) => {
    const held = amount ? parts.reduce((sum, part) => sum + part[place + 1], 0) / amount : -1;
    if (held > most) [most, resource] = [held, place];
  });
  let from = 0;
  const stops = [];
  for (const part of parts) {
    const to = from + (total[resource] ? part[resource + 1] / total[resource] : 0) / Math.max(most, 1);
    if (to > from) stops.push(colour(part[0]) + " " + 100 * from + "% " + 100 * to + "%");
    from = to;
  }
  return { held: Math.max(most, 0), paint: stops.length ? "linear-gradient(to top, " + stops.join(", ") + ", transparent " + 100 * from + "%)" : "none" };
}

const colour = (user) => "var(--u" + (user < 0 || user >= COLOURS ? COLOURS : user) + ")";

class Player {
  constructor(film) {
    this.film = film;
    this.frame = 0;
    this.playing = false;
    this.chosen = null; // ["agent" or "user", number]
    this.fills = film.cells.map(fill);
    this.top = Math.max(100, film.most(SHARE), film.most(DEBT), film.most(FAIR));
    this.about();
    this.makeControls();
    this.makeAgents();
    this.makeUsers();
    this.makePast();
    element("film").hidden = false;
    this.arrive();
    window.addEventListener("hashchange", () => this.arrive());
  }

  // The address of a moment ends in #FRAME or #FRAME,user,NUMBER.
  arrive() {
    const [frame, kind, number] = location.hash.slice(1).split(",");
    const many = { agent: this.cells, user: this.rows }[kind];
    this.chosen = many && many[number] ? [kind, Number(number)] : null;
    this.press();
    this.go(Number(frame) || 0);
  }

  note() {
    const moment = [this.frame, ...(this.chosen || [])].join();
    if (location.hash.slice(1) !== moment) history.replaceState(null, "", "#" + moment);
  }

  about() {
    const { source, policy, half_life: half, version, every, notes } = this.film.about;
    write(element("about"), [source, policy + (half === null ? "" : ", half-life " + duration(half)),
      "made by Longshare " + version].join(" · "));
    document.title = source + " – Longshare time machine";
    const sampled = "The recording has a frame for every " + duration(every) + "; changes between two frames are not shown.";
    for (const note of [sampled, ...notes]) element("notes").append(made("li", "", note));
  }

  when(milliseconds) {
    if (this.film.about.clock === "utc") {
      const text = new Date(milliseconds).toISOString();
      return [text.slice(11, this.fine ? 21 : 19), text.slice(0, 10) + " UTC"];
    }
    const seconds = milliseconds / 1000;
    const parts = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60].map((part) => String(Math.floor(part)).padStart(2, "0"));
    return [parts.join(":"), "day " + (1 + Math.floor(seconds / 86400)) + " of the trace"];
  }

  makeControls() {
    const { film } = this;
    this.fine = film.frames > 1 && (film.times[film.frames - 1] - film.times[0]) / (film.frames - 1) < 1000;
    const slider = element("slider");
    slider.max = film.frames - 1;
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    element("back").addEventListener("click", () => this.go(this.frame - 1));
    element("forth").addEventListener("click", () => this.go(this.frame + 1));
    element("play").addEventListener("click", () => this.toggle());
    element("close").addEventListener("click", () => this.choose(null));
    document.addEventListener("keydown", (event) => {
      const { tagName } = event.target;
      if (event.key === "Escape") this.choose(null);
      else if (event.key === " " && tagName !== "SELECT" && event.target.id !== "play") {
        event.preventDefault();
        this.toggle();
      } else if (tagName === "BODY" && event.key === "ArrowRight") this.go(this.frame + 1);
      else if (tagName === "BODY" && event.key === "ArrowLeft") this.go(this.frame - 1);
    });
    const marks = element("marks");
    marks.setAttribute("viewBox", "0 0 1000 10");
    drawn(marks, "", film.marks.map(([when]) => "M" + this.x(when) + ",0V10").join(""));
  }

  x(when) {
    const { times, frames } = this.film;
    return (1000 * clamp((when - times[0]) / (times[frames - 1] - times[0] || 1), 1)).toFixed(2);
  }

  // Elements that the arrow keys visit; only one of them is in the Tab order.
  walk(parent, order) {
    parent.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
      if (!(event.key in steps)) return;
      event.preventDefault();
      const nodes = order();
      const place = clamp(nodes.indexOf(document.activeElement) + steps[event.key], nodes.length - 1);
      for (const node of nodes) node.tabIndex = -1;
      nodes[place].tabIndex = 0;
      nodes[place].focus();
    });
  }

  makeAgents() {
    const { agents } = this.film;
    const parent = element("agents");
    const size = agents.length <= 60 ? 3 : agents.length <= 400 ? 1.6 : 0.8;
    parent.style.setProperty("--cell", size + "rem");
    parent.style.setProperty("--gap", size > 1 ? ".35rem" : ".15rem");
    this.cells = agents.map((name, agent) => {
      const node = made("button");
      node.type = "button";
      node.tabIndex = agent ? -1 : 0;
      node.title = name;
      node.addEventListener("click", () => this.choose(["agent", agent]));
      parent.append(node);
      return node;
    });
    this.shown = new Int32Array(agents.length).fill(-1);
    this.walk(parent, () => this.cells.filter((node) => !node.classList.contains("gone")));
    const own = this.film.users.length > COLOURS ? " The " + COLOURS + " users that held most have colours; the other users are grey." : "";
    write(element("legend"), "Each square is an agent, filled by the part held of its fullest resource. A dashed square is not offered." + own);
  }

  makeUsers() {
    const inner = made("div");
    this.rows = this.film.users.map(([name, parent], user) => {
      const node = made("button");
      node.type = "button";
      node.tabIndex = user ? -1 : 0;
      node.style.setProperty("--own", colour(user));
      const bars = made("span", "bars");
      bars.append(made("i", "share"), made("i", "debt"), made("i", "fair"));
      node.append(made("span", "turn"), made("span", "name", (parent ? "· " : "") + name), made("span", "numbers"), bars);
      node.addEventListener("click", () => this.choose(["user", user]));
      inner.append(node);
      return node;
    });
    element("users").append(inner);
    this.inner = inner;
    this.walk(element("users"), () => this.film.ranked(this.frame).filter((user) => this.film.is(user, this.frame)).map((user) => this.rows[user]));
  }

  makePast() {
    const { film } = this;
    this.paths = [];
    for (const [id, column] of [["shares", SHARE], ["debts", DEBT]]) {
      const chart = element(id);
      const top = Math.max(100, film.most(column), column === SHARE ? film.most(FAIR) : 0) * 1.05;
      chart.setAttribute("viewBox", "0 0 1000 100");
      chart.parentElement.querySelector(".scale").textContent = "of the cluster, up to " + percent(top / 1.05);
      const y = (value) => (100 - 100 * value / top).toFixed(2);
      const users = film.order.slice(0, COLOURS + THIN).reverse();
      for (const user of users) {
        let d = "";
        let pen = "M";
        for (let frame = 0; frame < film.frames; frame += 1) {
          if (!film.is(user, frame)) pen = "M";
          else {
            d += pen + this.x(film.times[frame]) + "," + y(film.of(user, column, frame));
            pen = "L";
          }
        }
        const path = drawn(chart, "", d);
        path.style.stroke = colour(user);
        this.paths.push([user, path]);
      }
      const fair = drawn(chart, "fair");
      const now = drawn(chart, "now");
      const go = (event) => {
        const box = chart.getBoundingClientRect();
        const wanted = film.times[0] + (film.times[film.frames - 1] - film.times[0]) * clamp((event.clientX - box.left) / box.width, 1);
        this.go(this.nearest(wanted));
      };
      chart.addEventListener("pointerdown", go);
      chart.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
      this[id] = { now, fair, y };
    }
    document.querySelectorAll(".ends time").forEach((node, end) =>
      write(node, this.when(film.times[end ? film.frames - 1 : 0]).reverse().join(" ")));
  }

  nearest(when) {
    const { times, frames } = this.film;
    let frame = 0;
    for (let each = 1; each < frames; each += 1) {
      if (Math.abs(times[each] - when) < Math.abs(times[frame] - when)) frame = each;
    }
    return frame;
  }

  go(frame) {
    this.exact = clamp(frame, this.film.frames - 1);
    this.show(Math.floor(this.exact));
    if (!this.playing) this.note();
  }

  toggle() {
    this.playing = !this.playing;
    const button = element("play");
    write(button, this.playing ? "❚❚" : "▶");
    button.setAttribute("aria-label", this.playing ? "Stop" : "Play");
    if (!this.playing) {
      this.note();
      return;
    }
    if (this.frame === this.film.frames - 1) this.go(0);
    this.exact = this.frame;
    let before = performance.now();
    const step = (now) => {
      if (!this.playing) return;
      const speed = Number(element("speed").value) * Math.max(this.film.frames / LENGTH, 2);
      this.go(this.exact + Math.min(now - before, 200) / 1000 * speed);
      before = now;
      if (this.frame === this.film.frames - 1) this.toggle();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  show(frame) {
    this.frame = frame;
    const { film } = this;
    const [time, day] = this.when(film.times[frame]);
    const clock = element("clock");
    write(clock.children[0], time);
    write(clock.children[1], day);
    const slider = element("slider");
    slider.value = frame;
    slider.setAttribute("aria-valuetext", time + ", " + day);
    const marks = film.marks.filter(([when]) => when <= film.times[frame]);
    const last = marks[marks.length - 1];
    const [at, of] = this.when(last ? last[0] : 0);
    write(element("mark"), last ? (of === day ? at : of + " " + at) + ": " + last[1] : "");
    this.showAgents();
    this.showUsers();
    for (const [id, column] of [["shares", SHARE], ["debts", DEBT]]) {
      this[id].now.setAttribute("d", "M" + this.x(film.times[frame]) + ",0V100");
      const user = this.chosen && this.chosen[0] === "user" ? this.chosen[1] : 0;
      const fair = column === SHARE && film.users.length && film.is(user, frame) ? film.of(user, FAIR, frame) : null;
      this[id].fair.setAttribute("d", fair === null ? "" : "M0," + this[id].y(fair) + "H1000");
    }
    this.explain();
  }

  showAgents() {
    const { film, frame } = this;
    let there = 0;
    let held = 0;
    this.cells.forEach((node, agent) => {
      const number = film.grid[frame * film.agents.length + agent];
      if (number) {
        there += 1;
        held += this.fills[number - 1].held;
      }
      if (this.shown[agent] === number) return;
      this.shown[agent] = number;
      node.classList.toggle("gone", !number);
      if (!number) return;
      const cell = film.cells[number - 1];
      node.classList.toggle("held-back", Boolean(film.states[cell[0]]));
      node.style.backgroundImage = this.fills[number - 1].paint;
      node.setAttribute("aria-label", film.agents[agent] + ", " + Math.round(100 * this.fills[number - 1].held) + " % held");
    });
    write(element("agents-told"), there + (there === 1 ? " agent, " : " agents, ") + (there ? Math.round(100 * held / there) : 0) + " % held");
  }

  showUsers() {
    const { film, frame, top } = this;
    const ranked = film.ranked(frame);
    let place = 0;
    for (const user of ranked) {
      const node = this.rows[user];
      const is = film.is(user, frame);
      node.classList.toggle("gone", !is);
      if (!is) continue;
      const [share, debt, fair, turn] = [SHARE, DEBT, FAIR, TURN].map((column) => film.of(user, column, frame));
      node.style.transform = "translateY(" + 3.2 * place + "rem)";
      node.classList.toggle("idle", !turn);
      const [turned, , numbers, bars] = node.children;
      write(turned, turn ? turn + "." : "–");
      write(numbers, percent(share) + (debt ? ", owes " + percent(debt) : ""));
      bars.children[0].style.transform = "scaleX(" + share / top + ")";
      bars.children[1].style.transform = "scaleX(" + debt / top + ")";
      bars.children[2].style.left = "calc(" + 100 * fair / top + "% - 2px)";
      place += 1;
    }
    this.inner.style.height = 3.2 * place + "rem";
  }

  choose(what) {
    const same = what && this.chosen && what.join() === this.chosen.join();
    this.chosen = same ? null : what;
    this.press();
    this.show(this.frame);
    this.note();
  }

  press() {
    const pressed = (nodes, kind) => nodes.forEach((node, number) =>
      node.setAttribute("aria-pressed", String(Boolean(this.chosen && this.chosen[0] === kind && this.chosen[1] === number))));
    pressed(this.cells, "agent");
    pressed(this.rows, "user");
    for (const [user, path] of this.paths) {
      const one = this.chosen && this.chosen[0] === "user";
      path.setAttribute("class", !one ? "" : user === this.chosen[1] ? "chosen" : "dim");
    }
  }

  explain() {
    element("why").hidden = !this.chosen;
    if (!this.chosen) return;
    const [kind, number] = this.chosen;
    const [name, words] = kind === "agent" ? this.agentWords(number) : this.userWords(number);
    write(element("why-heading"), name);
    const told = words.join("\n");
    if (this.told === told && this.toldOf === name) return;
    [this.told, this.toldOf] = [told, name];
    element("reasons").replaceChildren(...words.map((each) => made("p", "", each)));
  }

  agentWords(agent) {
    const { film, frame } = this;
    const cell = film.cell(agent, frame);
    const name = film.agents[agent];
    if (!cell) return [name, ["The agent is not registered now."]];
    const [state, total, parts] = cell;
    const free = total.map((amount, place) => Math.max(amount - parts.reduce((sum, part) => sum + part[place + 1], 0), 0));
    const words = ["It has " + film.amounts(total) + "."];
    for (const [user, ...held] of parts) {
      words.push((user < 0 ? "Users that are not shown hold" : film.users[user][0] + " holds, or is offered,") + " " + film.amounts(held) + ".");
    }
    words.push("Free: " + film.amounts(free) + "." + (film.states[state] ? " It is not offered: " + film.states[state] + "." : ""));
    return [name, words];
  }

  userWords(user) {
    const { film, frame } = this;
    const [name, parent] = film.users[user];
    if (!film.is(user, frame)) return [name, ["The service does not know this user now, or the user's share and commitment are too small to be shown."]];
    const [share, debt, fair, turn, waits, held] = [SHARE, DEBT, FAIR, TURN, WAITS, HELD].map((column) => film.of(user, column, frame));
    const words = [
      "It holds " + film.amounts(film.held[held]) + ": " + percent(share) + " of the cluster. It is entitled to " + percent(fair) + ".",
      debt ? "Its commitment for past over-use is " + percent(debt) + " of the cluster." : "It has no commitment.",
    ];
    const siblings = film.order.filter((each) => film.users[each][1] === parent && film.is(each, frame) && film.of(each, TURN, frame));
    if (!turn) words.push("It wants no offers.");
    else if (turn === 1) words.push("It is next of the " + siblings.length + " users that want offers.");
    else {
      const ahead = siblings.find((each) => film.of(each, TURN, frame) === turn - 1);
      words.push("It is number " + turn + " of the " + siblings.length + " users that want offers" +
        (ahead === undefined ? "." : "; directly ahead is " + film.users[ahead][0] + "."));
    }
    if (film.waits[waits]) words.push("Reason to wait: " + film.waits[waits] + ".");
    return [name, words];
  }
}

unpacked().then((data) => { window.player = new Player(new Film(data)); }).catch((error) => {
  write(element("trouble"), typeof DecompressionStream === "undefined"
    ? "This browser is too old to unpack the recording; use Chromium 80, Firefox 113, Safari 16.4, or a later version."
    : "The browser cannot read the recording: " + error.message + ". Make the page again.");
});
