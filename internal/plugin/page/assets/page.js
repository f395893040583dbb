// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Draws what the server has decided to show. Texts become text nodes and attributes, never markup: the page's policy (trusted types) would refuse it.
"use strict";

(() => {
  const by = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  // make is an element with attributes and children; null children are left out.
  function make(name, attributes, ...children) {
    const e = ["svg", "rect", "path"].includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) e.setAttribute(key, value === true ? "" : String(value));
    }
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
  }

  // The verdicts, worst first, and what people read for them.
  const VERDICTS = ["down", "disagree", "unknown", "settling", "one-side", "agree"];
  const word = (verdict) => verdict.replace("-", " ");

  // counts lists how many machines have which verdict but the last, "agree".
  function counts(byVerdict) {
    return VERDICTS.slice(0, -1).filter((v) => (byVerdict || {})[v]).map((v) => byVerdict[v] + " " + word(v));
  }

  const state = { q: "", only: "", asked: 0, shown: 0, body: "", every: 15, timer: 0, read: null, trouble: "", names: null, drawing: "", chosen: null, all: new Set() };

  // Time ------------------------------------------------------------------------------------------------------------------------------------------

  function ago(moment) {
    const s = Math.max(0, Math.round((Date.now() - moment.getTime()) / 1000));
    if (s < 5) return "now";
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (s >= 2 * size) return Math.floor(s / size) + " " + unit + " ago";
    }
    return s + " s ago";
  }

  function time(iso) {
    const at = new Date(iso);
    return make("time", { datetime: iso, title: at.toLocaleString() }, ago(at));
  }

  function tick() {
    for (const t of document.querySelectorAll("time")) {
      const text = ago(new Date(t.dateTime));
      if (t.textContent !== text) t.textContent = text;
    }
    if (state.read === null) return;
    const age = performance.now() - state.read;
    const read = ago(new Date(Date.now() - age));
    by("read").textContent = "read " + read;
    // Gray is what is old by its age, whatever has become of a request.
    const old = age > state.old;
    document.body.classList.toggle("old", old);
    const text = state.trouble || (old ? "What is shown was read " + read + "." : "");
    if (by("stale").textContent !== text) by("stale").textContent = text;
    by("stale").hidden = !text;
  }

  // Machines --------------------------------------------------------------------------------------------------------------------------------------

  function share(zone) {
    const bar = make("svg", { class: "share", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    let x = 0;
    for (const verdict of VERDICTS) {
      const n = (zone.byVerdict || {})[verdict] || 0;
      // A share that exists is visible, however small.
      const width = n ? Math.max(100 * n / zone.total, 1) : 0;
      if (width) bar.append(make("rect", { class: verdict, x, y: 0, width, height: 1 }));
      x += width;
    }
    return bar;
  }

  // heat draws each machine of a zone as a square, in the order of names: a path for each verdict, since thousands of elements would be slow.
  function heat(zone) {
    const wide = 48;
    const paths = VERDICTS.map(() => "");
    [...zone.heat].forEach((digit, i) => { paths[digit] += "M" + (i % wide) * 10 + " " + Math.floor(i / wide) * 10 + "h8v8h-8z"; });
    const rows = Math.ceil(zone.heat.length / wide);
    const map = make("svg", { class: "heat", viewBox: "0 0 " + wide * 10 + " " + rows * 10, preserveAspectRatio: "xMinYMin", "aria-hidden": "true" },
      ...paths.map((d, i) => (d ? make("path", { class: VERDICTS[i], d }) : null)));
    const named = make("p", { class: "named hint" }, "Point at a square to see its machine, and click to find it.");
    const at = async (event) => {
      const box = map.getBoundingClientRect();
      const size = 10 * Math.min(box.width / (wide * 10), box.height / (rows * 10));
      const i = Math.floor((event.clientY - box.top) / size) * wide + Math.floor((event.clientX - box.left) / size);
      const names = (await namesOf())[zone.name] || [];
      // Names of another reading than the squares would be wrong ones.
      return names.length === zone.heat.length && event.clientX - box.left < size * wide ? [names[i], VERDICTS[zone.heat[i]]] : [];
    };
    map.addEventListener("pointermove", async (event) => {
      const [name, verdict] = await at(event);
      if (name) named.textContent = name + ": " + word(verdict);
    });
    map.addEventListener("click", async (event) => {
      const [name] = await at(event);
      if (name) find(name);
    });
    return [map, named];
  }

  // namesOf are the names of all squares, asked for once for each drawing of them.
  function namesOf() {
    state.names = state.names || fetch("names.json?" + asking(), { cache: "no-store" }).then((r) => r.json()).catch(() => ({}));
    return state.names;
  }

  // find shows all that has a name.
  function find(name) {
    by("words").value = name;
    filter();
    by("machines").scrollIntoView();
  }

  function bad(counted) {
    const by = counted.byVerdict || {};
    return (by.down || 0) + (by.disagree || 0) > 0;
  }

  function tile(zone, machine, first) {
    const worst = (machine.findings || [])[0];
    const label = machine.name + ", " + word(machine.verdict) + (worst ? ": " + worst.what : "");
    const b = make("button", {
      type: "button", class: "tile " + machine.verdict, tabindex: first ? 0 : -1, "data-key": zone.name + "\n" + machine.name,
      "aria-label": label, title: label, "aria-haspopup": "dialog",
    }, machine.name);
    b.addEventListener("click", () => show(zone, machine));
    return b;
  }

  function zoneOf(zone, grouped) {
    const text = [zone.total + (zone.total === 1 ? " machine" : " machines"), ...counts(zone.byVerdict)].join(", ");
    const box = make("div", { class: "zone" + (bad(zone) ? " ill" : ""), role: "group", "aria-label": zone.name + ": " + text },
      make("h3", {}, zone.name + " ", make("span", {}, text)));
    if (grouped) box.append(...(zone.heat ? heat(zone) : [share(zone)]));
    const tiles = make("ul", { class: "tiles" });
    (zone.machines || []).forEach((m, i) => tiles.append(make("li", {}, tile(zone, m, i === 0))));
    if (tiles.childElementCount) box.append(tiles);
    if (zone.hidden) box.append(make("p", { class: "more" }, (zone.machines ? "and " : "") + zone.hidden + (zone.machines ? " more" : " not named") + "; filter to see them"));
    return box;
  }

  // Arrow keys move among the tiles of a zone, of which one at a time is in the order of Tab.
  function arrows(event) {
    const from = event.target.closest(".tile");
    if (!from) return;
    const all = [...from.closest(".tiles").querySelectorAll(".tile")];
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    let to = all.indexOf(from);
    if (event.key in steps) to += steps[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = all.length - 1;
    else return;
    event.preventDefault();
    rove(all[Math.min(all.length - 1, Math.max(0, to))]);
  }

  function rove(to) {
    for (const t of to.closest(".tiles").querySelectorAll(".tile")) t.tabIndex = t === to ? 0 : -1;
    to.focus();
  }

  function show(zone, machine) {
    state.chosen = zone.name + "\n" + machine.name;
    by("detail-name").textContent = machine.name;
    by("detail-verdict").textContent = word(machine.verdict) + " · " + zone.name;
    by("detail-verdict").className = machine.verdict;
    const sides = make("dl");
    for (const [side, says] of machine.sides) sides.append(make("dt", {}, side), make("dd", {}, says));
    const body = [sides];
    if (machine.findings) {
      body.push(make("h3", {}, "Findings"), make("ul", {}, ...machine.findings.map((f) =>
        make("li", {}, make("b", { class: f.verdict }, word(f.verdict)), ": " + f.what, f.since ? make("span", { class: "hint" }, " (since at least ", time(f.since), ")") : null,
          f.next ? make("div", { class: "hint" }, "Next: " + f.next) : null))));
    }
    const command = "kubectl mooring explain node " + machine.name;
    body.push(make("p", { class: "hint" }, "More: ", make("code", {}, command), " ", copier(command, "Copy")));
    by("detail-body").replaceChildren(...body);
    if (!by("detail").open) by("detail").showModal();
  }

  // copier is a button that copies a text.
  function copier(text, label) {
    const b = make("button", { type: "button", class: "copy", title: "Copy " + text, "aria-label": "Copy " + text }, label);
    b.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        b.textContent = "copied";
      } catch {
        b.textContent = "not allowed";
      }
      setTimeout(() => { b.textContent = label; }, 2000);
    });
    return b;
  }

  // machineLink leads to a machine on the map: to its details if it has a tile, else to all that has its name.
  function machineLink(name) {
    const b = make("button", { type: "button", class: "link", title: "Show this machine" }, name);
    b.addEventListener("click", () => {
      const found = [...document.querySelectorAll(".tile")].find((t) => t.textContent === name);
      if (found) {
        found.click();
        return;
      }
      find(name);
    });
    return b;
  }

  // faults shows what is wrong now, above all else: what and why, since when, what to run, and who acts next.
  function faults(w) {
    by("wrong").hidden = !w.first.length;
    by("wrong").replaceChildren(...w.first.map((f) => make("p", {}, make("b", {}, f.what), f.since ? make("span", {}, " (", time(f.since), ")") : null,
      ". Run ", make("code", {}, f.command), " ", copier(f.command, "Copy"), " Next: ", f.who + (f.next ? ", " + f.next : "") + ".")),
    ...(w.more ? [make("p", { class: "hint" }, w.more)] : []));
  }

  function machines(m) {
    by("summary").textContent = m.summary;
    by("zones").className = m.grouped ? "grouped" : "";
    state.names = null;
    by("zones").replaceChildren(...(m.zones || []).map((z) => zoneOf(z, m.grouped)));
    by("more-zones").textContent = m.more || "";
    for (const z of m.zones || []) {
      for (const x of z.machines || []) {
        if (by("detail").open && state.chosen === z.name + "\n" + x.name) show(z, x);
      }
    }
  }

  // The health strip is the way to the sections, worst first. The journal is history and has no state.
  function health(tiles) {
    const link = (key, title, state, text) => make("li", { class: "part " + state },
      make("a", { href: "#" + key }, make("b", {}, title), " ", make("span", { class: "count" }, text)));
    const at = by("sections").contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    by("sections").replaceChildren(...tiles.map((t) => link(t.key, t.title, t.state, t.text)), link("journal", "Recent steps", "absent", ""));
    if (at) by("sections").querySelector('a[href="' + at + '"]').focus(); // the strip is made again, the focus stays
    for (const t of tiles) {
      // A section without anything in it is folded to its title.
      by(t.key).classList.toggle("empty", Boolean(t.empty));
    }
  }

  // Tables ----------------------------------------------------------------------------------------------------------------------------------------

  function bars(cell) {
    return make("td", { class: "bars" }, ...cell.bars.map((b) => make("div", { class: "usage" },
      b.percent < 0 ? make("div", { class: "unbounded", title: "no limit" })
        : make("progress", { max: 100, value: b.percent, class: b.percent >= 90 ? "full" : null, "aria-label": b.label + ", " + b.percent + " percent" }),
      make("span", {}, b.label))));
  }

  function cell(c) {
    if (c.bars) return bars(c);
    if (c.at) return make("td", { class: "moment" }, time(c.at), c.text ? ": " + c.text : null);
    if (c.command) return make("td", {}, c.text ? c.text + ": " : null, make("code", {}, c.command), " ", copier(c.command, "Copy"));
    if (c.machine) return make("td", {}, machineLink(c.machine));
    return make("td", {}, c.text || "", ...(c.id ? [" ", copier(c.id, c.id.length > 8 ? c.id.slice(0, 8) + "…" : c.id)] : []));
  }

  // labeled names a cell by its column, for narrow windows, where the head is not seen.
  function labeled(td, column) {
    td.dataset.label = column;
    return td;
  }

  // few are the rows that a table begins with, those that need attention before others; history is what came last.
  function few(l) {
    const most = matchMedia("(max-width: 700px)").matches ? 5 : 20;
    const all = l.rows || [];
    if (all.length <= most || state.all.has(l.key)) return all;
    const ill = l.key === "journal" ? [] : all.filter((r) => r.ill);
    const chosen = new Set([...ill, ...all.filter((r) => !ill.includes(r))].slice(0, most));
    return all.filter((r) => chosen.has(r));
  }

  // rest is a button that shows the other rows, null if there are none.
  function rest(l, rows) {
    const hidden = (l.rows || []).filter((r) => !rows.includes(r));
    if (!hidden.length) return null;
    const ill = hidden.filter((r) => r.ill).length;
    const b = make("button", { type: "button", class: "rest" }, "Show " + hidden.length + " more" + (ill && l.key !== "journal" ? ", " + ill + " of which need attention" : ""));
    b.addEventListener("click", () => {
      state.all.add(l.key);
      list(l);
      by("list-" + l.key).focus();
    });
    return b;
  }

  function list(l) {
    const rows = few(l);
    const held = by("list-" + l.key).querySelector(".rest") === document.activeElement && document.activeElement !== null;
    const parts = [make("p", {}, l.summary, l.checked ? ", checked " : null, l.checked ? time(l.checked) : null)];
    if (l.problem) parts.unshift(make("p", { class: "problem" }, l.problem));
    if (rows.length) {
      parts.push(make("table", { "aria-labelledby": "title-" + l.key },
        make("thead", {}, make("tr", {}, ...l.columns.map((c) => make("th", { scope: "col" }, c)))),
        make("tbody", {}, ...rows.map((r) => make("tr", { class: [r.ill ? "ill" : "", r.old ? "aged" : ""].join(" ").trim() || null }, ...r.cells.map((c, i) => labeled(cell(c), l.columns[i])))))));
    }
    const more = rest(l, rows);
    if (more) parts.push(more);
    else if (l.more) parts.push(make("p", { class: "more" }, l.more));
    by("list-" + l.key).replaceChildren(...parts);
    if (held && more) more.focus(); // the table is made again, the focus stays
  }

  function drawing(d) {
    by("drawn").textContent = d.version ? "" : d.text || "";
    by("drawing").hidden = !d.version;
    if (d.version === state.drawing) return;
    state.drawing = d.version;
    by("drawing").replaceChildren(...(d.version ? [make("img", { src: "topology.svg?v=" + encodeURIComponent(d.version), alt: d.text })] : []));
  }

  // The whole page --------------------------------------------------------------------------------------------------------------------------------

  function render(page) {
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : undefined;
    const roved = [...document.querySelectorAll('.tile[tabindex="0"]')].map((t) => t.dataset.key);
    by("cluster").textContent = page.cluster;
    const wrong = page.health.filter((t) => t.state === "bad" || t.state === "unread").length;
    document.title = (wrong ? "(" + wrong + ") " : "") + "Mooring " + page.cluster;
    faults(page.wrong);
    health(page.health);
    machines(page.machines);
    page.lists.forEach(list);
    drawing(page.drawing);
    by("notes").replaceChildren(...(page.notes || []).map((n) => make("li", {}, n)));
    // The focus returns to the tile that had it.
    for (const t of document.querySelectorAll(".tile")) {
      if (roved.includes(t.dataset.key)) {
        for (const other of t.closest(".tiles").querySelectorAll(".tile")) other.tabIndex = other === t ? 0 : -1;
      }
      if (focused && t.dataset.key === focused && !by("detail").open) rove(t);
    }
  }

  async function load(fresh) {
    const asked = ++state.asked;
    const query = asking();
    if (fresh) query.set("fresh", "1");
    try {
      const response = await fetch("page.json?" + query, { cache: "no-store" });
      if (!response.ok) throw new Error(await response.text());
      const page = await response.json();
      if (asked < state.shown) return; // a later question was answered already
      state.shown = asked;
      state.every = page.everySeconds;
      state.read = performance.now() - 1000 * page.ageSeconds;
      state.old = 1000 * page.oldSeconds;
      state.trouble = page.stale ? "The cluster could not be read again; what is shown is old: " + page.stale : "";
      delete page.readAt;
      delete page.ageSeconds;
      const body = JSON.stringify(page);
      if (body !== state.body) {
        state.body = body;
        render(page);
      }
    } catch (err) {
      if (asked >= state.shown) state.trouble = "kubectl mooring ui does not respond: is it still running? (" + err.message + ")";
      by("stale").textContent = state.trouble;
      by("stale").hidden = !state.trouble;
    }
    tick();
    by("summary").dataset.asked = asked; // for tests: this question was answered
  }

  // A page that nobody looks at asks for nothing.
  function next() {
    clearTimeout(state.timer);
    state.timer = setTimeout(async () => {
      if (document.visibilityState === "visible") await load(true);
      next();
    }, state.every * 1000);
  }

  // asking is what a person asked to see, as an address has it.
  function asking() {
    const query = new URLSearchParams();
    if (state.q) query.set("q", state.q);
    if (state.only) query.set("only", state.only);
    return query;
  }

  function remember() {
    const hash = asking();
    history.replaceState(null, "", location.pathname + (hash.size ? "?" + hash : ""));
  }

  function filter() {
    state.q = by("words").value.trim();
    state.only = by("attention").checked ? "attention" : "";
    remember();
    load(false);
  }

  const given = new URLSearchParams(location.search);
  state.q = by("words").value = given.get("q") || "";
  state.only = given.get("only") === "attention" ? "attention" : "";
  by("attention").checked = Boolean(state.only);

  by("words").addEventListener("input", filter);
  by("attention").addEventListener("change", filter);
  by("filter").addEventListener("submit", (event) => event.preventDefault());
  by("refresh").addEventListener("click", () => { load(true); next(); });
  by("zones").addEventListener("keydown", arrows);
  by("detail").addEventListener("close", () => {
    const back = [...document.querySelectorAll(".tile")].find((t) => t.dataset.key === state.chosen);
    state.chosen = null;
    // The event comes a moment after the closing: a focus that has moved elsewhere by then stays there.
    const at = document.activeElement;
    if (back && (at === document.body || by("zones").contains(at))) rove(back);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !by("detail").open && document.activeElement !== by("words")) {
      event.preventDefault();
      by("words").focus();
    }
  });
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") { load(true); next(); } });
  setInterval(tick, 5000);
  load(false); // what is known at once, gray if it is old, and then the cluster as it is
  load(true);
  next();
})();
