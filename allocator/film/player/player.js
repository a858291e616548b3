// Plays a film of a cluster: reads the data inside this file, and loads nothing else.
"use strict";

const LENGTH = 40; // duration of the whole film at normal speed, in seconds
const SPEEDS = [["very slow", 0.1], ["slow", 0.4], ["normal", 1], ["fast", 3], ["very fast", 10]];
const GREY = 7; // colour of all users without a colour of their own
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 50, 60, 100, 120, 200, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 432000, 864000, 2592000, 7776000, 31536000]; // seconds between two numbers of the time axis
const UNITS = [["d", 86400, 259200], ["h", 3600, 10800], ["min", 60, 1200], ["s", 1, 0]]; // unit, seconds, least duration
const LINES = 47; // most lines in a chart
const [SHARE, DEBT, FAIR, TURN, WAITS, HELD] = [0, 1, 2, 3, 4, 5]; // columns of a user's data
const NARROW = matchMedia("(max-width: 30rem)").matches;
const element = (id) => document.getElementById(id);
const percent = (parts) => (parts / 100).toFixed(parts > 0 && parts < 100 ? 2 : 1) + "\u00a0%";
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
  node.setAttribute("class", name);
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
    this.arrivals = this.lines.map(([shares, , , turns]) => // the first frame in which a user wants or has anything; -1: none
      shares.findIndex((share, frame) => share > 0 || turns[frame] > 0));
    this.start = this.times[Math.min(...this.arrivals.filter((frame) => frame >= 0), this.frames - 1)];
    this.span = (this.times[this.frames - 1] - this.times[0]) / 1000 || 1; // seconds
  }

  // The last frame that begins at or before a time.
  at(when) {
    let frame = this.frames - 1;
    while (frame > 0 && this.times[frame] > when) frame -= 1;
    return frame;
  }

  // The first time at which a later user holds more than the earlier leader: [frame, newcomer, leader].
  // Frames with much less allocated than in the fullest frame do not count.
  lead(held) {
    const least = 0.8 * Math.max(...held);
    let [leader, since] = [-1, 0];
    for (let frame = 0; frame < this.frames; frame += 1) {
      const first = this.order.reduce((best, user) =>
        (this.of(user, SHARE, frame) > (best < 0 ? 0 : this.of(best, SHARE, frame)) ? user : best), leader);
      if (first === leader) continue;
      if (leader >= 0 && this.arrivals[first] > since && held[frame] >= least) return [frame, first, leader];
      [leader, since] = [first, frame];
    }
    return null;
  }

  is(user, frame) { return this.lines[user][SHARE][frame] >= 0; }
  of(user, column, frame) { return this.lines[user][column][frame]; }
  cell(agent, frame) {
    const number = this.grid[frame * this.agents.length + agent];
    return number ? this.cells[number - 1] : null;
  }

  amounts(vector) {
    return this.resources.map((name, place) => [name, vector[place]]).filter(([, amount]) => amount)
      .map(([name, amount]) => name + " " + (amount / 1000).toLocaleString("en", { maximumFractionDigits: 3 }) + (name === "mem" || name === "disk" ? "\u00a0MB" : ""))
      .join(", ") || "nothing";
  }

  most(column) {
    let most = 0;
    for (const columns of this.lines) for (const value of columns[column]) if (value > most) most = value;
    return most;
  }

  // Sorts the users of one level by rank; users that want no offers come last.
  ranked(frame) {
    const key = (user) => (this.is(user, frame) ? this.of(user, TURN, frame) || 1e6 : 1e9);
    return this.order.slice().sort((a, b) => key(a) - key(b) || this.of(b, SHARE, frame) - this.of(a, SHARE, frame) || a - b);
  }
}

// A cell shows the agent's resource with the largest held fraction, filled from below.
function fill(cell, colour) {
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

// A chart of one column over time, with numbers at its axis and names at its lines.
class Chart {
  constructor(id, player, column, name) {
    Object.assign(this, { player, column, name, node: element(id) });
    const { film } = player;
    const most = Math.max(100, film.most(column), column === SHARE ? film.most(FAIR) : 0);
    this.top = 1.2 * most; // the names need room
    this.svg = this.node.querySelector("svg");
    this.svg.setAttribute("viewBox", "0 0 1000 100");
    const step = [10, 20, 50, 100, 200, 500, 1000, 2500, 5000].find((each) => most / each <= 5) || 10000;
    const values = Array.from({ length: Math.floor(most / step) + 1 }, (_, number) => step * number);
    for (const value of values) {
      const number = made("span", "number", Number((value / 100).toFixed(1)) + "\u00a0%");
      number.style.top = this.y(value) + "%";
      this.node.append(number);
    }
    drawn(this.svg, "grid", values.map((value) => "M0," + this.y(value) + "H1000").join(""));
    drawn(this.svg, "mark", film.marks.slice(0, LINES).map(([when]) => "M" + player.x(when) + ",0V100").join(""));
    this.users = film.order.slice(0, LINES).reverse(); // users with the largest shares are drawn last
    this.paths = this.users.map((user) => {
      const path = drawn(this.svg, "line", this.line(user));
      path.style.stroke = player.colour(user);
      return path;
    });
    this.fair = drawn(this.svg, "fair");
    this.now = drawn(this.svg, "now");
    this.fairName = made("span", "named");
    this.names = film.order.slice(0, LINES).filter((user) => film.users[user][2] < GREY && this.peak(user).value).map((user) => {
      const node = made("span", "named", film.users[user][0]);
      node.style.setProperty("--own", player.colour(user));
      return [user, node];
    });
    this.node.append(this.fairName, ...this.names.map(([, node]) => node));
    const go = (event) => {
      const box = this.svg.getBoundingClientRect();
      player.go(film.times[0] + 1000 * film.span * clamp((event.clientX - box.left) / box.width, 1));
    };
    this.svg.addEventListener("pointerdown", go);
    this.svg.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  }

  y(value) { return 100 - 100 * value / this.top; }

  // A share changes at once, and a commitment continuously. A line begins with its first value above zero.
  line(user) {
    const { player: { film }, column } = this;
    const first = film.lines[user][column].findIndex((value) => value > 0);
    let d = "";
    let before = -1;
    for (let frame = first < 0 ? film.frames : Math.max(first - 1, 0); frame < film.frames; frame += 1) {
      const value = film.is(user, frame) ? film.of(user, column, frame) : -1;
      if (column === SHARE && value === before && frame < film.frames - 1) continue;
      const [x, y] = [this.player.x(film.times[frame]), this.y(value).toFixed(2)];
      if (before >= 0 && (column === SHARE || value < 0)) d += "H" + x;
      if (value >= 0) d += before < 0 ? "M" + x + "," + y : column === SHARE ? "V" + y : "L" + x + "," + y;
      before = value;
    }
    return d;
  }

  peak(user) {
    const values = this.player.film.lines[user][this.column];
    const value = values.reduce((most, each) => Math.max(most, each), 0);
    return { value, frame: values.indexOf(value) };
  }

  // Puts each name at the peak of its line, or elsewhere at the line if another name is there.
  place() {
    const { film } = this.player;
    const { width, height } = this.svg.getBoundingClientRect();
    const boxes = this.fairName.textContent ? [[0, this.fairName.offsetTop, this.fairName.offsetWidth]] : [];
    for (const [user, node] of this.names) {
      node.hidden = false;
      const [wide, high] = [node.offsetWidth, node.offsetHeight];
      const frames = Array.from({ length: 40 }, (_, number) => Math.floor(number * film.frames / 40));
      node.hidden = ![this.peak(user).frame, ...frames].some((frame) => {
        const value = film.of(user, this.column, frame);
        const left = clamp(width * this.player.x(film.times[frame]) / 1000, width - wide);
        const top = Math.max(height * this.y(value) / 100 - high - 2, 0);
        const meets = ([x, y, w]) => left < x + w && x < left + wide && Math.abs(top - y) < high;
        if (value <= 0 || boxes.some(meets)) return false;
        boxes.push([left, top, wide]);
        node.style.left = left + "px";
        node.style.top = top + "px";
        return true;
      });
    }
  }

  show(frame, chosen) {
    const { film } = this.player;
    const x = this.player.x(film.times[frame]);
    this.now.setAttribute("d", "M" + x + ",0V100");
    this.users.forEach((user, place) => this.paths[place].setAttribute("class", "line" +
      (user === chosen ? " chosen" : chosen >= 0 ? " dim" : film.users[user][2] === GREY ? " other" : "")));
    if (this.column !== SHARE || !film.users.length) return;
    const present = film.order.filter((user) => film.is(user, frame) && !film.users[user][1]);
    const alike = new Set(present.map((user) => film.of(user, FAIR, frame)));
    const user = chosen >= 0 ? chosen : alike.size === 1 ? present[0] : -1;
    const fair = user >= 0 && film.is(user, frame) ? film.of(user, FAIR, frame) : null;
    this.fair.setAttribute("d", fair === null ? "" : "M0," + this.y(fair) + "H1000");
    write(this.fairName, fair === null ? "" : (NARROW ? "" : chosen >= 0 ? film.users[user][0] + " is " : "each user is ") + "entitled to " + percent(fair));
    if (fair !== null) this.fairName.style.top = "calc(" + this.y(fair) + "% + 1px)";
  }
}

class Player {
  constructor(film) {
    this.film = film;
    this.playing = false;
    this.byClock = false;
    this.chosen = null; // ["agent" or "user", number]
    this.colour = (user) => "var(--u" + (user < 0 ? GREY : film.users[user][2]) + ")";
    this.fills = film.cells.map((cell) => fill(cell, this.colour));
    this.top = Math.max(100, film.most(SHARE), film.most(DEBT), film.most(FAIR));
    this.opening = this.tell();
    this.about();
    this.makeControls();
    this.makeAgents();
    this.makeUsers();
    element("film").hidden = false;
    this.charts = [new Chart("shares", this, SHARE), new Chart("debts", this, DEBT)];
    element("debts-part").hidden = !film.most(DEBT);
    new ResizeObserver(() => this.lay()).observe(element("past"));
    this.arrive();
    window.addEventListener("hashchange", () => this.arrive());
  }

  // Finds the moment at which the film opens: the first newcomer's lead, or else the fullest moment.
  tell() {
    const { film } = this;
    const size = film.agents.length;
    const held = Array.from(film.times, (_, frame) => film.grid.subarray(frame * size, (frame + 1) * size)
      .reduce((sum, number) => sum + (number ? this.fills[number - 1].held : 0), 0));
    const lead = film.lead(held);
    if (lead) {
      const [frame, newcomer, leader] = lead;
      film.marks.push([film.times[frame], film.users[newcomer][0] + " now holds more than " + film.users[leader][0] + ", which led before"]);
      film.marks.sort((a, b) => a[0] - b[0]);
      return frame;
    }
    return held.indexOf(Math.max(...held));
  }

  // The address of a moment ends in #t=SECONDS, and perhaps &user=NAME or &agent=NAME.
  arrive() {
    const { film } = this;
    const address = new URLSearchParams(location.hash.slice(1));
    const seconds = parseFloat(address.get("t"));
    const user = film.users.findIndex(([name]) => name === address.get("user"));
    const agent = film.agents.indexOf(address.get("agent"));
    this.chosen = user >= 0 ? ["user", user] : agent >= 0 ? ["agent", agent] : null;
    this.press();
    this.when = Number.isFinite(seconds) ? film.start + 1000 * seconds + 0.5 : film.times[this.opening];
    this.show(film.at(this.when));
  }

  note() {
    const address = new URLSearchParams({ t: (this.film.times[this.frame] - this.film.start) / 1000 });
    if (this.chosen) {
      const [kind, number] = this.chosen;
      address.set(kind, kind === "user" ? this.film.users[number][0] : this.film.agents[number]);
    }
    if (location.hash.slice(1) !== String(address)) history.replaceState(null, "", "#" + address);
  }

  about() {
    const { source, policy, half_life: half, version, every, notes } = this.film.about;
    write(element("about"), [source, policy + (half === null ? "" : ", half-life " + duration(half)),
      "made by Longshare " + version].join(" · "));
    document.title = source + " – Longshare time machine";
    const sampled = "The recording has a frame for every " + duration(every) + "; changes between two frames are not shown.";
    for (const note of [sampled, ...notes]) element("notes").append(made("li", "", note));
  }

  // An instant as the seconds since the start, or as the clock's time: [text, remark].
  words(instant) {
    const { film } = this;
    const two = (part) => String(Math.floor(part)).padStart(2, "0");
    if (!this.byClock) {
      const seconds = (instant - film.start) / 1000;
      if (film.span < 1200) return [seconds.toFixed(film.about.every < 1 ? 1 : 0).replace("-", "−") + "\u00a0s", "since the start"];
      const whole = Math.abs(seconds);
      const days = whole < 86400 ? "" : Math.floor(whole / 86400) + "\u00a0d ";
      return [(seconds < 0 ? "−" : "") + days + [whole / 3600 % 24, whole / 60 % 60, whole % 60].map(two).join(":"), "since the start"];
    }
    if (film.about.clock === "utc") {
      const text = new Date(instant).toISOString();
      return [text.slice(11, film.about.every < 1 ? 21 : 19), text.slice(0, 10) + " UTC"];
    }
    const seconds = instant / 1000;
    return [[seconds / 3600 % 24, seconds / 60 % 60, seconds % 60].map(two).join(":"), "day " + (1 + Math.floor(seconds / 86400)) + " of the trace"];
  }

  makeControls() {
    const { film } = this;
    const slider = element("slider");
    [slider.min, slider.max] = [film.times[0], film.times[film.frames - 1]];
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    slider.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.step(step, event.shiftKey);
    });
    for (const [name, factor] of SPEEDS) {
      const rate = Number((film.span / LENGTH * factor).toPrecision(1));
      const option = made("option", "", name + ", " + duration(rate) + " per second");
      option.value = rate;
      option.selected = factor === 1;
      element("speed").append(option);
    }
    element("back").addEventListener("click", () => this.step(-1));
    element("forth").addEventListener("click", () => this.step(1));
    element("play").addEventListener("click", () => this.toggle());
    element("close").addEventListener("click", () => this.choose(null));
    element("by-clock").addEventListener("change", (event) => {
      this.byClock = event.target.checked;
      this.lay();
      this.show(this.frame);
    });
    document.addEventListener("keydown", (event) => {
      const { tagName } = event.target;
      const away = !event.target.closest("#agents, #users, #why, input, select");
      if (event.key === "Escape") this.choose(null);
      else if (event.key === " " && tagName !== "SELECT" && tagName !== "INPUT" && event.target.id !== "play") {
        event.preventDefault();
        this.toggle();
      } else if (away && event.key === "ArrowRight") this.step(1, event.shiftKey);
      else if (away && event.key === "ArrowLeft") this.step(-1, event.shiftKey);
    });
    const marks = element("marks");
    marks.setAttribute("viewBox", "0 0 1000 10");
    drawn(marks, "", film.marks.map(([when]) => "M" + this.x(when) + ",0V10").join(""));
  }

  // Goes to the next or the previous picture, or mark.
  step(by, marked) {
    const { film } = this;
    const now = film.times[this.frame];
    const marks = film.marks.map(([when]) => film.times[film.at(when)]).filter((when) => by * (when - now) > 0);
    this.go(!marked ? film.times[clamp(this.frame + by, film.frames - 1)] : marks.length ? marks[by > 0 ? 0 : marks.length - 1] : now);
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
    const own = this.film.users.length > GREY ? " Of the users with the same colour, the one that held most has it; the others are grey." : "";
    write(element("legend"), "Each square is an agent, filled by the part held of its fullest resource. Dashed: not offered." + own);
  }

  makeUsers() {
    const inner = made("div");
    this.rows = this.film.users.map(([name, parent], user) => {
      const node = made("button");
      node.type = "button";
      node.tabIndex = user ? -1 : 0;
      node.style.setProperty("--own", this.colour(user));
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

  // Draws what depends on the size of the page: the time axis, and names in the charts.
  lay() {
    const { film } = this;
    const axis = element("axis");
    const most = Math.max(axis.clientWidth / 80, 2);
    const [unit, size] = UNITS.find(([, , least]) => film.span >= least);
    const fits = unit === "s" && !this.byClock ? (each) => each % 30 || each >= 300 // steps such as 50 s and 100 s; with clock times 1 min and 2 min instead
      : (each) => each < 1 || 60 % each === 0 || each % 60 === 0;
    const step = STEPS.find((each) => fits(each) && film.span / each <= most) || film.span;
    const zero = this.byClock ? 0 : film.start;
    axis.replaceChildren();
    for (let tick = Math.ceil((film.times[0] - zero) / 1000 / step); ; tick += 1) {
      const instant = zero + 1000 * step * tick;
      if (!(instant <= film.times[film.frames - 1]) || axis.childElementCount > 100) break;
      const clock = this.words(instant);
      const text = this.byClock ? (step >= 86400 ? clock[1] : clock[0].slice(0, step < 60 ? 8 : 5))
        : String(Number((step * tick / size).toFixed(2))).replace("-", "−");
      const node = made("span", "", text);
      node.style.left = this.x(instant) / 10 + "%";
      axis.append(node);
    }
    write(element("axis-name"), !this.byClock ? "Time since the first demand (" + unit + ")" : film.about.clock === "utc" ? "Time of day, UTC" : "Time of the trace");
    for (const chart of this.charts) chart.place();
  }

  go(when) {
    this.when = when;
    this.show(this.film.at(when));
    if (!this.playing) this.note();
  }

  toggle() {
    const { film } = this;
    this.playing = !this.playing;
    const last = film.times[film.frames - 1];
    if (this.playing && this.frame === film.frames - 1) this.go(film.times[0]);
    const button = element("play");
    button.classList.toggle("playing", this.playing);
    write(button, this.playing ? "Stop" : "Play");
    if (!this.playing) {
      this.note();
      return;
    }
    let before = performance.now();
    const step = (now) => {
      if (!this.playing) return;
      this.go(Math.min(this.when + Math.min(now - before, 200) * Number(element("speed").value), last));
      before = now;
      if (this.when >= last) this.toggle();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  show(frame) {
    this.frame = frame;
    const { film } = this;
    const instant = film.times[frame];
    const [time, remark] = this.words(instant);
    const clock = element("clock");
    write(clock.children[0], time);
    write(clock.children[1], remark);
    const slider = element("slider");
    slider.value = instant;
    slider.style.setProperty("--done", this.x(instant) / 1000);
    slider.setAttribute("aria-valuetext", time + ", " + remark);
    const marks = film.marks.filter(([when]) => when <= instant);
    const last = marks[marks.length - 1];
    write(element("mark"), last ? this.words(last[0])[0] + ": " + last[1] : "");
    this.showAgents();
    this.showUsers();
    for (const chart of this.charts) chart.show(frame, this.chosen && this.chosen[0] === "user" ? this.chosen[1] : -1);
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
    write(element("agents-told"), there.toLocaleString("en") + (there === 1 ? " agent, " : " agents, ") + (there ? Math.round(100 * held / there) : 0) + " % held");
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
      write(numbers, percent(share) + (debt ? ", commitment " + percent(debt) : ""));
      bars.children[0].style.transform = "scaleX(" + share / top + ")";
      bars.children[1].style.transform = "scaleX(" + debt / top + ")";
      bars.children[2].style.transform = "translateX(" + Math.max(100 * fair / top - 0.4, 0) + "%)";
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
