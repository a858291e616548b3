// The table of users: figures and charts over time, in one order and on one scale.
"use strict";

const LEAST_SCALE = 0.001; // fraction of the cluster; the smallest scale of a chart

const SCALES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1];

const LINES = 5000; // milliseconds between two requests for the history; more if a pixel of the chart is longer
const PIXELS = 300;
const NO_SHARE = 5e-5; // fraction of the cluster; a smaller share is shown as zero

const demand = (each) => Object.entries(each).map(([name, value]) => name + ":" + thousandths(value)).join(" "); // in the notation of commands

// Heading, sort key and text of each column, in the terms of `longshare shares`.
const COLUMNS = [
  { name: "rank", sort: (row) => row.place, text: (row) => (row.parent ? "· " : "") + row.rank },
  { name: "user", kind: "user", sort: (row) => row.user },
  { name: "over time", kind: "chart" },
  { name: "share", down: true, sort: (row) => -row.share, text: (row) => percent(row.share) },
  { name: "of that offered", down: true, sort: (row) => -row.offered, text: (row) => percent(row.offered), if: (row) => row.offered !== null },
  { name: "task share", down: true, sort: (row) => -row.task_share, text: (row) => (row.task_share === null ? "-" : percent(row.task_share)), if: (row) => row.task_share !== null },
  { name: "entitled to", down: true, sort: (row) => -row.entitlement, text: (row) => percent(row.entitlement) },
  { name: "commitment", down: true, sort: (row) => -row.commitment, text: (row) => percent(row.commitment) },
  { name: "shortfall", down: true, sort: (row) => -row.shortfall, text: (row) => percent(row.shortfall) },
  { name: "priority", sort: (row) => row.priority, text: (row) => row.priority.toFixed(4) },
  { name: "weight", down: true, sort: (row) => -row.weight, text: (row) => amount(row.weight) },
  { name: "wants offers", sort: (row) => !row.wants, text: (row) => (row.passed_over ? "passed over" : row.wants ? "yes" : "no") },
  { name: "reason to wait", kind: "text", sort: (row) => row.kept_by || "\uffff", text: (row) => row.kept_by },
];

// The states to choose from. At first, the page selects the first state with users, unless all users fit on one page.
const STATES = [
  ["wanting", (row) => row.wants],
  ["active", (row) => row.wants || row.share > NO_SHARE || row.commitment > NO_SHARE],
  ["holding", (row) => row.share > NO_SHARE],
  ["all", () => true],
];

const BRIEF = ["share", "entitled to", "commitment", "shortfall"]; // on a phone, further numbers are shown for the selected user

class Users {
  constructor() {
    this.rows = [];
    this.known = 0;
    this.sorting = "rank";
    this.backwards = false;
    this.past = null;
    this.top = 0;
    this.pages = new Pages("users", PAGE, () => this.showAgain());
    element("search").addEventListener("input", () => this.pages.go(0, () => this.showAgain()));
    element("range").addEventListener("change", () => {
      this.top = 0;
      this.look();
    });
    this.state = null;
    element("state").addEventListener("change", () => {
      this.state = element("state").value;
      this.pages.go(0, () => this.showAgain());
    });
    element("sort").addEventListener("change", () => this.sort(element("sort").value, false));
    element("why-close").addEventListener("click", () => this.explain(null));
    for (const name of ["pointerdown", "pointermove"]) element("users").addEventListener(name, (event) => this.point(event));
    element("users").addEventListener("pointerleave", () => this.point(null));
    element("users").addEventListener("keydown", (event) => this.walk(event));
    element("users").addEventListener("focusin", ({ target }) => this.visit(target.closest("svg")));
    element("users").addEventListener("focusout", ({ relatedTarget }) => relatedTarget?.closest("svg") || this.visit(null));
    addEventListener("scroll", () => (this.pointed && this.pointed.time !== undefined ? this.read() : this.point(null)), { passive: true });
    this.pointed = null; // { chart, and part: of its width, or time: in seconds }
    this.charted = null; // user whose chart is in the Tab order
    this.asking = false;
    this.lookedAt = 0;
    this.explained = null;
    this.later = null;
    this.asked = 0;
  }

  update(seen) {
    this.rows = seen.users.map((row, place) => ({
      ...row, place, words: [row.user, row.kept_by, ...row.demands.map(demand), ...row.constraints].join(" ").toLowerCase(),
    }));
    this.known = seen.users_known;
    this.wanting = seen.words.wants;
    this.columns = COLUMNS.filter((column) => !column.if || this.rows.some(column.if))
      .map((column) => (column.name === "wants offers" ? { ...column, name: seen.words.wants } : column));
    this.show();
    const { users } = this.past || {};
    const unseen = users && !this.asking && Date.now() - this.lookedAt > LINES && this.shown.some((row) => !named(users, row.user));
    if (!this.asked || unseen) this.look(); // look() schedules its own repetition, so an early call is needed only for missing users
  }

  showAgain() {
    this.show();
    this.look();
  }

  sort(name, backwards) {
    this.sorting = name;
    this.backwards = backwards;
    this.pages.go(0, () => this.showAgain());
  }

  // The users that match the search or, without a search, that are in the chosen state.
  selected() {
    const numbers = STATES.map(([name, belongs]) => [name, this.rows.filter(belongs).length]);
    this.chosen = this.state || (this.rows.length > PAGE ? numbers.find(([, number]) => number)[0] : "all");
    choose(element("state"), numbers.map(([name, number]) => [name, (name === "wanting" ? this.wanting : name) + " (" + number + ")"]));
    element("state").value = this.chosen;
    const wanted = element("search").value.trim().toLowerCase();
    element("state").disabled = Boolean(wanted); // a search finds users in all states
    return wanted ? this.rows.filter((row) => row.words.includes(wanted)) : this.rows.filter(STATES.find(([name]) => name === this.chosen)[1]);
  }

  ordered(rows) {
    const by = this.columns.find((column) => column.name === this.sorting) || COLUMNS[0];
    const sign = this.backwards ? -1 : 1;
    return rows.sort((a, b) => {
      const [left, right] = [by.sort(a), by.sort(b)];
      return sign * (left < right ? -1 : left > right ? 1 : a.place - b.place);
    });
  }

  show() {
    if (!this.columns) return;
    this.showHeadings();
    const rows = this.ordered(this.selected());
    const everyone = this.chosen === "all" || element("state").disabled;
    this.shown = this.pages.of(rows, everyone ? this.rows.length : rows.length, everyone ? this.known : rows.length);
    const signature = this.columns.map((column) => column.name).join();
    keep(element("users"), this.shown, (row) => signature + row.user, (row) => this.made(row), (line, row) => this.fill(line, row));
    this.order();
    this.read();
  }

  showHeadings() {
    choose(element("sort"), this.columns.filter((column) => column.sort).map((column) => [column.name, "by " + column.name]));
    element("sort").value = this.sorting;
    keep(element("headings"), this.columns, (column) => column.name, (column) => {
      const kind = column.kind || "number";
      const head = made("th", undefined, { scope: "col", role: "columnheader", class: kind === "number" ? "" : kind === "user" ? "text" : kind });
      if (column.kind === "chart") {
        const axis = made("span", undefined, { class: "axis" });
        axis.append(made("span"), made("span"), made("span"));
        head.append(axis);
        return head;
      }
      const button = made("button", column.name, { type: "button" });
      button.addEventListener("click", () => this.sort(column.name, this.sorting === column.name && !this.backwards));
      head.append(button);
      return head;
    }, (head, column) => {
      if (column.name === this.sorting) set(head, "aria-sort", Boolean(column.down) === this.backwards ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
      if (column.kind === "chart") {
        const { first, until } = this.past || {};
        const texts = this.past ? [this.named(first), duration(until - first), this.named(until) + " UTC"] : ["over time", "", ""];
        texts.forEach((text, index) => write(head.firstChild.children[index], text));
      }
    });
  }

  // A time on the axis, in UTC.
  named(time) {
    const { first, until } = this.past;
    return until - first < 86400 ? clock(time).slice(0, 8) : moment(time);
  }

  made(row) {
    const line = made("tr", undefined, { role: "row" });
    for (const column of this.columns) {
      if (column.kind === "user") {
        const head = made("th", undefined, { scope: "row", role: "rowheader" });
        const ask = made("button", legible(row.user), { type: "button", class: "name" });
        ask.addEventListener("click", () => this.explain(row.user));
        head.append(ask, made("small"));
        line.append(head);
      } else if (column.kind === "chart") {
        const cell = made("td", undefined, { role: "cell", class: "chart" });
        const chart = drawing("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "slider", "aria-readonly": "true" });
        for (const name of ["area", "grid", "fair", "share", "commitment", "cursor"]) chart.append(drawing("path", { class: name }));
        cell.append(chart);
        line.append(cell);
      } else {
        line.append(made("td", undefined, { role: "cell", class: column.kind || (BRIEF.includes(column.name) ? "brief" : column.name === "rank" ? "rank" : "more"), "data-heading": column.name }));
      }
    }
    return line;
  }

  fill(line, row) {
    line.className = row.wants ? "" : "idle";
    line.style.setProperty("--own", "var(--u" + row.colour + ")");
    set(line, "aria-selected", String(this.explained === row.user));
    this.columns.forEach((column, place) => {
      const cell = line.children[place];
      if (column.kind === "user") {
        const needs = [...new Set(row.demands.map(demand))].join("; ");
        write(cell.children[1], [needs && "demand " + needs, ...row.constraints].filter(Boolean).join(" · "));
      } else if (column.kind === "chart") this.draw(cell.firstChild, row);
      else write(cell, column.text(row));
    });
  }

  draw(chart, row) {
    const { times, users, first, until } = this.past || { times: [], users: byName(), first: 0, until: 1 };
    const [shares, debts] = named(users, row.user) || [[], []];
    const top = this.top || 1;
    const x = (when) => (Math.max(when - first, 0) / (until - first || 1) * 300).toFixed(1);
    const y = (value) => (98 - value / top * 94).toFixed(1);
    // A share changes at once, and a commitment continuously. An area ends at the zero line.
    const path = (values, now, steps, area) => {
      let d = "";
      let start = null;
      const close = (until) => (area ? (steps ? "H" + until : "") + "V98H" + start + "Z" : "");
      values.forEach((value, index) => {
        const at = x(times[index]);
        if (value !== null) d += start === null ? "M" + at + "," + y(value) : steps ? "H" + at + "V" + y(value) : "L" + at + "," + y(value);
        else if (start !== null) d += close(at);
        start = value === null ? null : start ?? at;
      });
      return start === null ? d : d + (steps ? "H300V" + y(now) : "L300," + y(now)) + close(300);
    };
    const [area, grid, fair, share, commitment] = chart.children;
    set(area, "d", path(shares, row.share, true, true));
    set(grid, "d", [75, 150, 225].map((at) => "M" + at + ",0V100").join(""));
    set(fair, "d", "M0," + y(Math.min(row.entitlement, top)) + "H300");
    set(share, "d", path(shares, row.share, true));
    set(commitment, "d", path(debts, row.commitment, false));
    chart.dataset.user = row.user;
    set(chart, "aria-label", legible(row.user) + " over " + duration(until - first) + ", entitled to " + percent(row.entitlement) + ", scale up to " + percent(top));
    set(chart, "aria-valuemin", String(Math.floor(first)));
    set(chart, "aria-valuemax", String(Math.ceil(until)));
    if (!chart.matches(":focus")) this.say(chart, until, "now: share " + percent(row.share) + " · commitment " + percent(row.commitment));
  }

  // Tells a screen reader the values of a chart at a time.
  say(chart, time, text) {
    set(chart, "aria-valuenow", String(Math.round(time)));
    set(chart, "aria-valuetext", text);
  }

  // Begins to read a focused chart at its last value, or stops.
  visit(chart) {
    if (!chart || !this.past) return this.point(null);
    this.charted = chart.dataset.user;
    this.order();
    if (!this.pointed || this.pointed.chart !== chart) this.pointed = { chart, time: this.pointed?.time ?? this.past.until };
    this.read();
  }

  // Keys of a focused chart: left and right, Page, Home and End go in time; up and down go to another chart.
  walk(event) {
    const chart = event.target.closest("svg");
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
    const rows = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!chart || !this.past || !(steps || rows || event.key === "Escape")) return;
    event.preventDefault();
    if (event.key === "Escape") return chart.blur();
    const bounded = (list, at) => list[Math.min(Math.max(at, 0), list.length - 1)];
    if (rows) {
      const charts = [...element("users").querySelectorAll("svg")];
      return bounded(charts, charts.indexOf(chart) + rows).focus();
    }
    const times = this.past.times.filter((time) => time >= this.past.first);
    const time = this.pointed?.time ?? this.past.until;
    const at = times.findLastIndex((each) => each <= time);
    const from = steps < 0 && times[at] < time ? at + 1 : at; // between two samples, one step back leads to the earlier one
    if (times.length) this.pointed = { chart, time: bounded(times, from + steps) };
    this.read();
  }

  // Keeps one chart in the Tab order: the one visited last, or else the first.
  order() {
    const user = this.shown.some((row) => row.user === this.charted) ? this.charted : this.shown[0]?.user;
    for (const chart of element("users").querySelectorAll("svg")) set(chart, "tabindex", chart.dataset.user === user ? "0" : "-1");
  }

  // Remembers which time of the charts is under the pointer or finger; null: none.
  point(event) {
    const chart = event && event.target.closest("svg");
    if (!chart && !this.pointed) return;
    const box = chart && chart.getBoundingClientRect();
    this.pointed = chart && { chart, part: Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) };
    this.read();
  }

  // Shows the values at the remembered time, and a line at this time in all charts.
  read() {
    const label = element("reading");
    const { times, users, first, until } = this.past || { times: [] };
    const chart = this.pointed && this.pointed.chart;
    const lines = chart && chart.isConnected && users && named(users, chart.dataset.user);
    const part = !lines ? 0 : this.pointed.part ?? Math.min(Math.max((this.pointed.time - first) / (until - first || 1), 0), 1);
    const d = lines ? "M" + (300 * part).toFixed(1) + ",0V100" : "";
    for (const cursor of element("users").querySelectorAll(".cursor")) set(cursor, "d", d);
    label.hidden = !lines;
    if (!lines) return;
    const time = first + part * (until - first);
    let at = times.findLastIndex((each) => each <= time);
    if (at < 0) at = times.findIndex((each) => each >= first);
    const value = (line) => (at < 0 || line[at] === null ? "unknown" : percent(line[at]));
    write(label, this.named(time) + " · share " + value(lines[0]) + " · commitment " + value(lines[1]));
    if (this.pointed.time !== undefined) this.say(chart, time, label.textContent);
    const box = chart.getBoundingClientRect();
    const room = document.documentElement.clientWidth - label.offsetWidth - 8;
    label.style.left = Math.max(Math.min(box.left + part * box.width - label.offsetWidth / 2, room), 8) + "px";
    const above = box.top - label.offsetHeight - 4;
    label.style.top = (above > 40 ? above : box.bottom + 4) + "px";
  }

  async look() {
    clearTimeout(this.later);
    this.asking = true;
    this.lookedAt = Date.now();
    const number = this.asked += 1;
    const seconds = Number(element("range").value);
    let pause = Math.max(LINES, 1000 * seconds / PIXELS);
    const query = new URLSearchParams({ seconds });
    for (const row of this.shown || []) query.append("user", row.user);
    try {
      const answer = await fetch("api/past?" + query, { cache: "no-store" });
      if (!answer.ok) throw new Error("HTTP " + answer.status);
      const past = await answer.json();
      if (number === this.asked) {
        // The charts begin where there are values.
        past.first = past.times.find((_, index) => Object.values(past.users).some((lines) => lines[0][index] !== null)) ?? past.since;
        this.past = past;
        if (past.chronicle === false) pause = Math.min(pause, 60_000);
        this.rescale();
        this.show();
      }
    } catch { // the line under the title reports the failure; the charts are old
      pause = LINES;
    }
    if (number !== this.asked) return;
    this.asking = false;
    this.later = setTimeout(() => this.look(), pause);
  }

  // One scale for all users on all pages: the largest share, commitment or past value.
  rescale() {
    let top = Math.max(LEAST_SCALE, this.top);
    for (const row of this.rows) top = Math.max(top, row.share, row.commitment, row.parent ? 0 : row.entitlement);
    for (const lines of Object.values(this.past.users)) for (const line of lines) for (const value of line) if (value > top) top = value;
    this.top = this.top >= top ? this.top : SCALES.find((each) => each >= top) ?? top;
    const { chronicle, first, since, until, seen_since: seen } = this.past;
    const source = chronicle === false ? " The accounting database has not answered in time."
      : first > since + 60 ? " The service has no earlier data." : "";
    const hours = Math.max(Math.ceil((until - since) / 3600 / PIXELS), 1); // hours of each mean
    const means = chronicle && first < (seen ?? until) ? " Until " + this.named(seen ?? until) + ", the values are means of " + duration(3600 * hours) + " from the accounts." : "";
    write(element("scale"), "All charts reach up to " + percent(this.top) + " of the cluster." + means + source);
  }

  async explain(user) {
    this.explained = user;
    element("why").hidden = user === null;
    for (const line of element("users").children) {
      set(line, "aria-selected", String(user !== null && line.querySelector(".name").textContent === legible(user)));
    }
    if (user === null) return;
    write(element("why-heading"), legible(user));
    let words = ["The service does not answer."];
    try {
      const answer = await fetch("api/explain?user=" + encodeURIComponent(user));
      const told = await answer.json();
      words = told.words ? [...(told.time ? ["As of " + clock(told.time) + ":"] : []), ...told.words] : [told.error];
    } catch { /* `words` and the line under the title report the failure */ }
    if (this.explained === user) element("why-words").replaceChildren(...words.map((each) => made("p", each)));
  }
}
