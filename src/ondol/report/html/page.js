"use strict";
// Everything that a test said reaches the screen through textContent or fillText, never as markup.
(async () => {
  const $ = (id) => document.getElementById(id);
  const BAD = ["failed", "error", "crashed", "timeout", "cache-fault", "device-lost", "not-run"];
  const ORDER = [...BAD, "xpassed", "passed", "xfailed", "skipped"];
  const PHASES = { s: "setup", c: "call", t: "teardown" };
  const ROW = 30, SHOWN = 50;

  // ------------------------------------------------------------------ small things

  function make(tag, text, ...classes) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    made.className = classes.join(" ");
    return made;
  }
  function put(parent, ...children) {
    for (const child of children) if (child) parent.append(child);
    return parent;
  }
  function seconds(value) {
    if (value >= 6000) return (value / 3600).toFixed(1) + " h";
    if (value >= 100) return (value / 60).toFixed(1) + " min";
    return value.toFixed(value < 10 ? 2 : 1) + " s";
  }
  function bytes(value) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (value < 1024 || unit === "GiB") return `${value.toFixed(unit === "B" || value >= 100 ? 0 : 1)} ${unit}`;
      value /= 1024;
    }
    return "";
  }
  const count = (number, one, many) => `${number} ${number === 1 ? one : many || one + "s"}`;
  async function unpack(id) {
    const raw = Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }
  function badge(verdict, item) {
    const also = item ? `${item.flaky ? ", flaky" : ""}${item.muted ? ", muted" : ""}` : "";
    return put(make("span"), make("span", "", "dot", verdict), document.createTextNode(verdict + also));
  }
  function table(heads, rows) {
    const made = make("table"), head = make("tr");
    heads.forEach((name, at) => put(head, Object.assign(make("th", name, rows[0] && rows[0][at].className === "n" ? "n" : ""), { scope: "col" })));
    const body = make("tbody");
    for (const row of rows) {
      const line = make("tr");
      for (const cell of row) put(line, cell instanceof Node && cell.nodeName === "TD" ? cell : put(make("td"), cell instanceof Node ? cell : document.createTextNode(String(cell))));
      put(body, line);
    }
    return put(made, put(make("thead"), head), body);
  }
  const number = (value) => make("td", value, "n");
  const long = (value) => make("td", value, "long");

  // ------------------------------------------------------------------ the data

  let data, texts;
  try {
    [data, texts] = await Promise.all([unpack("data"), unpack("texts")]);
  } catch (error) {
    $("trouble").hidden = false;
    $("trouble").textContent = `This page cannot be shown here: ${error}. It needs a browser from 2023 or later.`;
    return;
  }
  const text = (at) => (at === -1 ? "[left out to keep this file small; ondol report JOURNAL --json FILE has it]" : texts[at || 0]);
  const flaky = new Set(data.flaky);
  const attempts = data.attempts.map(([item, turn, lane, begin, end, outcome, warm, worker, phases, told]) => ({
    item, turn, lane, begin, end, outcome: outcome || "not-run", warm, worker, phases, told: told || {},
  }));
  const byItem = data.ids.map(() => []);
  const byLane = data.lanes.map(() => []);
  for (const one of attempts) { byItem[one.item].push(one); byLane[one.lane].push(one); }
  for (const some of byItem) some.sort((a, b) => a.turn - b.turn);
  const items = data.ids.map((id, index) => {
    const tries = byItem[index], last = tries[tries.length - 1];
    const device = last ? data.lanes[last.lane].device || data.lanes[last.lane].slot : "";
    const verdict = data.verdicts[index] || "not-run";
    const words = `${id} ${verdict} ${flaky.has(index) ? "flaky" : ""} ${index in data.muted ? "muted" : ""} ${device}`.toLowerCase();
    return { index, id, verdict, device, words, muted: index in data.muted, seconds: tries.reduce((sum, a) => sum + a.end - a.begin, 0), flaky: flaky.has(index) };
  });
  const known = new Map(data.ids.map((id, index) => [id, index]));
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

  function opener(index, shown) {
    const button = make("button", shown || data.ids[index], "link");
    button.type = "button";
    button.addEventListener("click", () => go(index));
    return button;
  }
  function some(indices, more) {
    const list = make("ul", "", "list");
    for (const index of indices.slice(0, SHOWN)) put(list, put(make("li"), opener(index), more ? make("span", more(index), "soft") : null));
    if (indices.length > SHOWN) put(list, make("li", `and ${indices.length - SHOWN} more`, "soft"));
    return list;
  }

  // ------------------------------------------------------------------ above all: what it was, how it ended

  function showHead() {
    const total = Object.entries(data.counts).map(([name, n]) => `${n} ${name}`).join(", ") || "no tests";
    const how = data.complete ? "" : " The run was cut off: this is what its journal knew.";
    const stopped = data.stopped ? ` Stopped: ${data.stopped}.` : "";
    $("headline").textContent = `${total} in ${seconds(data.seconds)}, ${new Date(data.began * 1000).toLocaleString()}.${stopped}${how}`;
    const bad = items.filter((item) => BAD.includes(item.verdict) && !item.muted).length + data.fatal.length;
    document.title = `${bad ? bad + " bad" : "all good"}: ${total}`;
    for (const name of ORDER.filter((name) => data.counts[name])) {
      const chip = put(make("button"), badge(name), make("strong", ` ${data.counts[name]}`));
      chip.type = "button";
      chip.addEventListener("click", () => only(name));
      put($("chips"), chip);
    }
  }
  function only(verdict) {
    $("verdict").value = verdict;
    refilter();
    $("items").scrollIntoView();
    $("items-title").focus({ preventScroll: true });
  }
  function showAgainst(body) {
    const found = data.against, parts = [["new", found.new_failures], ["failed before too", found.known_failures], ["fixed", found.fixed]];
    put(body, make("h3", `Against the run of ${new Date(found.began * 1000).toLocaleString()}`));
    put(body, make("p", [...parts, ["added", found.added], ["gone", found.gone]].map(([word, ids]) => `${ids.length} ${word}`).join(", ")));
    for (const [word, ids] of parts) if (ids.length) put(body, make("p", word), some(ids.map((id) => known.get(id))));
    const slower = new Map(found.slower.map(([id, was, now]) => [known.get(id), ` ${seconds(was)}, now ${seconds(now)}`]));
    if (slower.size) put(body, make("p", "slower"), some([...slower.keys()], (index) => slower.get(index)));
    if (found.colder) put(body, make("p", `colder: ${found.colder[0]} entries were compiled then, ${found.colder[1]} now`));
  }
  function showFailures() {
    const body = $("failures").querySelector(".body"), fresh = new Set(data.against ? data.against.new_failures : []);
    for (const [file, why] of data.fatal) put(body, make("p", `${file} ended the process that collected it: ${why}`, "warn"));
    data.causes.forEach((cause, place) => {
      const box = make("details"), inside = make("div");
      box.open = place < 3;
      put(box, put(make("summary"), make("strong", `${count(cause.items.length, "test")}: `), document.createTextNode(cause.title)));
      if (cause.cure) put(inside, make("p", cause.cure), make("p", `known fault ${cause.id}; ondol explain knows more`, "hint"));
      put(inside, some(cause.items, (index) => ` ${data.verdicts[index]}${fresh.has(data.ids[index]) ? ", new" : ""}`));
      put(body, put(box, inside));
    });
    if (!data.causes.length && !data.fatal.length) put(body, make("p", data.complete ? "Nothing." : "Nothing that is known of."));
    const muted = Object.keys(data.muted).map(Number);
    if (muted.length) put(body, make("h3", "Muted: failed as ondol-known.toml said that they may"), some(muted, (index) => ` ${data.muted[index]}`));
    if (data.against) showAgainst(body);
  }
  function showSuspects() {
    const body = $("suspects").querySelector(".body"), dirt = new Map();
    for (const one of attempts) for (const [kind, what] of one.told.dirt || []) {
      const name = `${kind}: ${what}`.replace(/\d+/g, "0");
      if (!dirt.has(name)) dirt.set(name, { what: `${kind}: ${what}`, items: new Set() });
      dirt.get(name).items.add(one.item);
    }
    const leaks = data.flaky.filter((index) => text(data.why[index]).startsWith("state-leak"));
    const others = data.flaky.filter((index) => !leaks.includes(index));
    if (leaks.length) put(body, make("h3", "State-leak suspects: failed after other tests, passed in a fresh worker"), some(leaks));
    if (others.length) put(body, make("h3", "Flaky"), some(others, (index) => ` ${text(data.why[index])}`));
    if (dirt.size) put(body, make("h3", "Left something behind"));
    for (const { what, items: which } of [...dirt.values()].slice(0, SHOWN)) put(body, make("p", `${what} (${count(which.size, "test")})`), some([...which]));
    $("suspects").hidden = !body.children.length;
  }
  function showSlowest() {
    const slow = items.filter((item) => byItem[item.index].length).sort((a, b) => b.seconds - a.seconds).slice(0, 20);
    const total = items.reduce((sum, item) => sum + item.seconds, 0) || 1;
    const rows = slow.map((item) => [opener(item.index), number(item.seconds.toFixed(2)), number(`${Math.round((100 * item.seconds) / total)}%`), badge(item.verdict, item)]);
    put($("slowest").querySelector(".body"), rows.length ? table(["Test", "Seconds", "Of all", "Verdict"], rows) : make("p", "Nothing was run."));
  }
  function showDevices() {
    const rows = Object.entries(data.devices).map(([device, kind]) => {
      const lanes = data.lanes.map((lane, at) => [lane, at]).filter(([lane]) => lane.device === device);
      const ran = lanes.flatMap(([, at]) => byLane[at]), lives = lanes.flatMap(([lane]) => lane.lives);
      const busy = ran.reduce((sum, a) => sum + a.end - a.begin, 0), whole = (data.seconds || 1) * Math.max(1, lanes.length);
      const evidence = make("td", "", "long");
      const [why, witnesses] = data.aside[device] || [], probes = data.probes.filter(([name]) => name === device);
      if (why) put(evidence, make("strong", "quarantined: "), make("span", why), some(witnesses));
      if (probes.length) put(evidence, make("p", `probes: ${probes.map(([, fault]) => fault || "healthy").join(", ")}`));
      if (!evidence.children.length) evidence.textContent = "–";
      const kills = lives.filter((life) => life[5]).length;
      return [device, kind, number(ran.length), number(`${Math.round((100 * busy) / whole)}%`), number(lives.length), number(kills), evidence];
    });
    put($("devices").querySelector(".body"), table(["Device", "Kind", "Attempts", "Busy", "Workers", "Died", "Evidence"], rows));
  }
  function showCache() {
    const body = $("cache").querySelector(".body");
    const heads = ["Tool", "Filled", "Used", "New", "Made again", "Published", "Compiling saved", "Compiling", "Not taken, not given"];
    for (const room of data.rooms) {
      if (data.rooms.length > 1 || room.node) put(body, make("h3", room.node || "this machine"));
      const rows = room.tools.map((tool) => {
        const aside = { ...tool.refused, ...tool.untrusted };
        if (tool.bad_packs) aside["bad packs"] = tool.bad_packs;
        if (tool.left_out) aside["left in the store (fill-max)"] = tool.left_out;
        const why = Object.entries(aside).map(([name, n]) => `${n} ${name}`).join("; ");
        return [tool.name, number(`${tool.filled || 0} (${bytes(tool.filled_bytes || 0)})`), number(tool.used ?? "unknown"), number(tool.new || 0), number(tool.remade || 0),
          number(`${tool.published || 0} (${bytes(tool.published_bytes || 0)})`), number(seconds(tool.seconds_saved || 0)), number(seconds(tool.seconds_new || 0)), long(why || "–")];
      });
      put(body, rows.length ? table(heads, rows) : make("p", "No tool filled, made or left anything."));
      const told = [room.store && `store ${room.store}, scope ${room.scope || "none"}`, room.publish_decision && `publishing: ${room.publish_decision}`, room.seconds && `filling took ${seconds(room.seconds.fill || 0)}, publishing ${seconds(room.seconds.publish || 0)}`];
      for (const line of [...told, ...(room.warnings || []), ...(room.remarks || [])].filter(Boolean)) put(body, make("p", line, "hint"));
      for (const one of room.passed_over || []) put(body, make("p", `passed over: ${Object.entries(one).map(([k, v]) => `${k} ${v}`).join(", ")}`, "hint"));
    }
    if (!data.rooms.length) put(body, make("p", "The journal does not say: the run was cut off, had no room, or was started by pytest itself."));
  }
  function showRun() {
    const list = make("dl");
    const told = { Directory: data.run.root, Devices: data.run.found, Workers: data.run.mode, "Exit status": data.status ?? "none", "Run again": data.again, Python: data.run.python, pytest: data.run.pytest, Ondol: data.run.ondol };
    for (const [name, value] of Object.entries(told)) if (value !== "") put(list, make("dt", name), make("dd", value));
    put($("run").querySelector(".body"), list);
    if (data.notes.length) put($("run").querySelector(".body"), make("h3", "Notes"), put(make("ul"), ...data.notes.map((note) => make("li", note))));
  }

  // ------------------------------------------------------------------ all tests: only the rows that can be seen exist

  let chosenItems = items;
  const rows = new Map();
  const spaces = [make("tr", "", "space"), make("tr", "", "space")];
  for (const space of spaces) { space.setAttribute("aria-hidden", "true"); put(space, Object.assign(make("td"), { colSpan: 3 })); }
  let everyRow = false, current = -1;

  function refilter() {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = words.filter((word) => word[0] !== "-"), unwanted = words.filter((word) => word[0] === "-" && word[1]).map((word) => word.slice(1));
    const verdict = $("verdict").value;
    const fits = { "": () => true, bad: (item) => BAD.includes(item.verdict) && !item.muted, flaky: (item) => item.flaky, known: (item) => item.muted }[verdict] || ((item) => item.verdict === verdict);
    chosenItems = items.filter((item) => fits(item) && wanted.every((word) => item.words.includes(word)) && !unwanted.some((word) => item.words.includes(word)));
    const by = { slow: (a, b) => b.seconds - a.seconds, bad: (a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict), device: (a, b) => a.device.localeCompare(b.device) }[$("order").value];
    if (by) chosenItems.sort((a, b) => by(a, b) || a.index - b.index);
    $("count").textContent = `${chosenItems.length} of ${items.length}`;
    $("list").setAttribute("aria-rowcount", chosenItems.length + 1);
    for (const row of rows.values()) row.remove();
    rows.clear();
    $("scroll").scrollTop = 0;
    drawRows();
  }
  function drawRows() {
    const frame = $("scroll");
    const first = everyRow ? 0 : Math.max(0, Math.floor(frame.scrollTop / ROW) - 8);
    const last = everyRow ? Math.min(chosenItems.length, 2000) : Math.min(chosenItems.length, Math.ceil((frame.scrollTop + frame.clientHeight) / ROW) + 8);
    for (const [place, row] of rows) if (place < first || place >= last) { row.remove(); rows.delete(place); }
    spaces[0].firstChild.style.height = `${first * ROW}px`;
    spaces[1].firstChild.style.height = `${(chosenItems.length - last) * ROW}px`;
    let before = spaces[0];
    for (let place = first; place < last; place++) {
      if (!rows.has(place)) {
        const row = rowOf(place);
        rows.set(place, row);
        before.after(row);
      }
      before = rows.get(place);
    }
  }
  function rowOf(place) {
    const item = chosenItems[place], row = make("tr");
    row.setAttribute("aria-rowindex", place + 2);
    row.classList.toggle("on", item.index === current);
    const name = put(make("td"), opener(item.index));
    name.title = item.id;
    const tries = byItem[item.index].length;
    put(row, put(make("td", undefined, "v"), badge(item.verdict, item)), name, make("td", tries ? item.seconds.toFixed(2) : "–", "n"), make("td", item.device || "–", "d"), make("td", tries, "n", "a"));
    return row;
  }
  function walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], row = event.target.closest("tr[aria-rowindex]");
    if (!step || !row) return;
    event.preventDefault();
    const place = Math.min(chosenItems.length - 1, Math.max(0, row.getAttribute("aria-rowindex") - 2 + step)), frame = $("scroll");
    const head = $("list").tHead.offsetHeight;
    if (place * ROW < frame.scrollTop) frame.scrollTop = place * ROW;
    if ((place + 1) * ROW + head > frame.scrollTop + frame.clientHeight) frame.scrollTop = (place + 1) * ROW + head - frame.clientHeight;
    drawRows();
    rows.get(place).querySelector("button").focus({ preventScroll: true });
  }
  function prepareList() {
    put($("list").tBodies[0], ...spaces);
    const choices = [["", "all"], ["bad", "bad or not run"], ["flaky", "flaky"], ["known", "muted"], ...ORDER.filter((name) => data.counts[name]).map((name) => [name, name])];
    for (const [value, shown] of choices) put($("verdict"), Object.assign(make("option", shown), { value }));
    for (const [id, kind] of [["filter", "input"], ["verdict", "change"], ["order", "change"]]) $(id).addEventListener(kind, refilter);
    document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    $("scroll").addEventListener("scroll", drawRows, { passive: true });
    $("list").addEventListener("keydown", walk);
    refilter();
  }

  // ------------------------------------------------------------------ the timeline

  const timeline = (() => {
    const canvas = $("timeline"), pen = canvas.getContext("2d"), AXIS = 36, GAP = 4;
    const high = Math.max(10, Math.min(28, Math.floor(9000 / Math.max(1, data.lanes.length))));
    const order = byLane.map((some) => some.sort((a, b) => a.begin - b.begin));
    const whole = Math.max(data.seconds, 0.001);
    let from = 0, to = whole, left = 90, wide = 600, colours = {}, chosen = null, waiting = false;

    const x = (at) => left + ((at - from) / (to - from)) * (wide - left - 8);
    const at = (px) => from + ((px - left) / (wide - left - 8)) * (to - from);
    const top = (lane) => AXIS + lane * (high + GAP);
    const name = (lane) => lane.slot.replace(/^gang:/, "");

    function recolour() {
      const style = getComputedStyle(document.documentElement);
      for (const key of [...ORDER, "ink", "soft", "line", "paper", "raised", "start", "life", "focus"]) colours[key] = style.getPropertyValue(`--${key}`).trim();
      redraw();
    }
    function redraw() {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; draw(); });
    }
    function size() {
      const scale = devicePixelRatio || 1, tall = top(data.lanes.length) + 4;
      wide = canvas.parentElement.clientWidth || 600;
      canvas.width = wide * scale;
      canvas.height = tall * scale;
      canvas.style.height = `${tall}px`;
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.font = "12px system-ui, sans-serif";
      left = Math.min(wide / 4, 20 + Math.max(40, ...data.lanes.map((lane) => pen.measureText(name(lane)).width)));
      redraw();
    }
    function draw() {
      pen.clearRect(0, 0, wide, canvas.height);
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      drawAxis();
      data.lanes.forEach((lane, place) => drawLane(lane, place));
      drawAgain();
      drawMarks();
      canvas.dataset.from = from.toFixed(4);
      canvas.dataset.to = to.toFixed(4);
    }
    function drawAxis() {
      const rough = (to - from) / Math.max(2, (wide - left) / 110), power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
      for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
        pen.fillStyle = colours.line;
        pen.fillRect(x(tick), AXIS - 6, 1, canvas.height);
        pen.fillStyle = colours.soft;
        pen.textAlign = "center";
        pen.fillText(step < 1 ? `${tick.toFixed(Math.max(0, -Math.floor(Math.log10(step))))} s` : `${Math.round(tick)} s`, Math.min(wide - 20, Math.max(left + 14, x(tick))), 9);
      }
      if (data.collected > from) box(0, data.collected, AXIS, top(data.lanes.length) - AXIS, colours.raised);
    }
    function box(begin, end, y, tall, colour, least) {
      const one = Math.max(left, x(begin)), two = Math.min(wide - 8, Math.max(x(end), x(begin) + (least || 0)));
      if (two <= one) return false;
      pen.fillStyle = colour;
      pen.fillRect(one, y, two - one, tall);
      return two - one;
    }
    function drawLane(lane, place) {
      const y = top(place), strip = Math.max(2, Math.floor(high / 7)), tall = high - strip - 1;
      pen.fillStyle = colours.ink;
      pen.textAlign = "right";
      if (high >= 10) pen.fillText(name(lane), left - 8, y + high / 2, left - 12);
      lane.lives.forEach(([, asked, up, end, why, died], turn) => {
        box(asked, up, y, high, colours.start);
        box(up, end, y, strip, turn % 2 ? colours.line : colours.life);
        box(up, end, y + high - 1, 1, colours.line);
        if (died || (why && why !== "the run is over")) cross(end, y, died);
      });
      for (const [, begin, end] of lane.prepared) box(begin, end, y + strip, tall, colours.start, 1);
      let edge = -1;
      const some = order[place];
      for (const one of some) {
        if (one.end < from || one.begin > to || BAD.includes(one.outcome)) continue;
        const right = x(one.end);
        if (right - edge < 0.5 && right - x(one.begin) < 0.5) continue; // on a pixel that has been drawn
        bar(one, y + strip, tall);
        edge = right;
      }
      // Bad ones last: they must not vanish under a thousand good ones.
      for (const one of some) if (BAD.includes(one.outcome) && one.end >= from && one.begin <= to) bar(one, y + strip, tall);
    }
    function bar(one, y, tall) {
      const bad = BAD.includes(one.outcome), width = box(one.begin, one.end, y, tall, colours[one.outcome] || colours["not-run"], bad ? 3 : 1);
      let begin = one.begin;
      if (width > 6) for (const [letter, spent] of one.phases) {
        pen.globalAlpha = 0.45;
        if (letter !== "c") box(begin, begin + spent, y, tall, colours.paper);
        pen.globalAlpha = 1;
        begin += spent;
        if (begin < one.end) box(begin, begin, y, tall, colours.paper, 1);
      }
      if (bad && width > 16 && tall >= 10) {
        pen.fillStyle = colours.paper;
        pen.textAlign = "left";
        pen.fillText(one.outcome[0].toUpperCase(), Math.max(left, x(one.begin)) + 4, y + tall / 2 + 1);
      }
      if (one === chosen) {
        pen.strokeStyle = colours.focus;
        pen.lineWidth = 2;
        pen.strokeRect(Math.max(left, x(one.begin)) - 1, y - 1, Math.max(4, Math.min(wide, x(one.end)) - Math.max(left, x(one.begin))) + 2, tall + 2);
      }
    }
    function cross(end, y, died) {
      if (end < from || end > to) return;
      pen.fillStyle = died ? colours.failed : colours.soft;
      pen.beginPath();
      pen.moveTo(x(end) - 4, y - 2);
      pen.lineTo(x(end) + 4, y - 2);
      pen.lineTo(x(end), y + 6);
      pen.fill();
    }
    function drawAgain() {
      pen.strokeStyle = colours.soft;
      pen.lineWidth = 1;
      pen.globalAlpha = 0.55;
      let drawn = 0;
      for (const tries of byItem) for (let n = 1; n < tries.length && drawn < 2000; n++) {
        const [one, two] = [tries[n - 1], tries[n]];
        if (two.begin < from || one.end > to || one.end < from || two.begin > to) continue;
        const [y1, y2] = [top(one.lane) + high / 2, top(two.lane) + high / 2];
        pen.beginPath();
        pen.moveTo(x(one.end), y1);
        pen.bezierCurveTo(x(one.end) + 24, y1, x(two.begin) - 24, y2, x(two.begin), y2);
        pen.stroke();
        drawn++;
      }
      pen.globalAlpha = 1;
    }
    function drawMarks() {
      for (const [when, kind, where] of data.marks) {
        if (when < from || when > to) continue;
        pen.strokeStyle = pen.fillStyle = kind === "node up" || kind === "cache healed" ? colours.soft : colours.failed;
        pen.setLineDash([4, 3]);
        pen.beginPath();
        pen.moveTo(x(when), AXIS - 18);
        pen.lineTo(x(when), top(data.lanes.length));
        pen.stroke();
        pen.setLineDash([]);
        pen.textAlign = x(when) > wide - 160 ? "right" : "left";
        pen.fillText(`${kind} ${where}`, x(when) + (pen.textAlign === "left" ? 3 : -3), AXIS - 12);
      }
    }
    function show(begin, end) {
      const span = Math.min(whole, Math.max(whole / 1e5, 0.001, end - begin));
      from = Math.min(Math.max(0, begin), whole - span);
      to = from + span;
      redraw();
    }
    function zoom(factor, around) {
      const middle = around ?? (chosen ? Math.min(to, Math.max(from, chosen.begin)) : (from + to) / 2);
      show(middle - (middle - from) / factor, middle + (to - middle) / factor);
    }
    function words(one) {
      const spent = one.phases.map(([letter, s]) => `${PHASES[letter] || letter} ${seconds(s)}`).join(", ");
      return `${data.ids[one.item]}\n${one.outcome}, attempt ${one.turn}, ${seconds(one.end - one.begin)} on ${name(data.lanes[one.lane])} (${one.warm ? "warm" : "fresh"} worker ${one.worker})\n${spent}`;
    }
    function choose(one, say) {
      chosen = one;
      if (one && (one.end < from || one.begin > to)) show((one.begin + one.end - to + from) / 2, (one.begin + one.end + to - from) / 2);
      if (say) $("chosen").textContent = one ? words(one).replaceAll("\n", "; ") : "";
      redraw();
    }
    function under(event) {
      const frame = canvas.getBoundingClientRect(), px = event.clientX - frame.left, py = event.clientY - frame.top;
      const place = Math.floor((py - AXIS) / (high + GAP));
      if (px < left || !order[place]) return null;
      let best = null, distance = 5;
      for (const one of order[place]) {
        const away = Math.max(0, x(one.begin) - px, px - Math.max(x(one.end), x(one.begin) + 3)) - (BAD.includes(one.outcome) ? 0.5 : 0);
        if (away < distance) { best = one; distance = away; }
      }
      return best || place;
    }
    function laneWords(place, event) {
      const when = at(event.clientX - canvas.getBoundingClientRect().left), lane = data.lanes[place];
      const life = lane.lives.find((one) => when >= one[1] && when <= one[3]);
      if (!life) return `${name(lane)}: no worker, nothing to do`;
      if (when < life[2]) return `worker ${life[0]} starts: ${seconds(life[2] - life[1])}`;
      return `worker ${life[0]}: waiting\nran ${count(life[6], "item")}, ended after ${seconds(life[3] - life[2])}${life[4] ? `: ${life[4]}` : ""}`;
    }
    function hover(event) {
      const found = under(event), tip = $("tip");
      tip.hidden = found === null;
      canvas.style.cursor = found && typeof found === "object" ? "pointer" : "grab";
      if (found === null) return;
      tip.textContent = typeof found === "object" ? words(found) : laneWords(found, event);
      tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
    }
    let grabbed = null, moved = 0;
    canvas.addEventListener("pointerdown", (event) => { grabbed = { x: event.clientX, from, to }; moved = 0; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!grabbed) return hover(event);
      moved = Math.max(moved, Math.abs(event.clientX - grabbed.x));
      if (moved > 3) {
        const by = ((event.clientX - grabbed.x) / (wide - left - 8)) * (grabbed.to - grabbed.from);
        $("tip").hidden = true;
        show(grabbed.from - by, grabbed.to - by);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const found = under(event);
      grabbed = null;
      if (moved <= 3 && found && typeof found === "object") { choose(found, true); go(found.item); }
    });
    canvas.addEventListener("pointercancel", () => { grabbed = null; });
    canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 200), at(event.clientX - canvas.getBoundingClientRect().left));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const lane = chosen ? chosen.lane : order.findIndex((some) => some.length), some = order[lane] || [], place = some.indexOf(chosen);
      const nearest = (other) => order[other].reduce((best, one) => (!best || Math.abs(one.begin - chosen.begin) < Math.abs(best.begin - chosen.begin) ? one : best), null);
      const beside = (step) => { for (let n = lane + step; order[n]; n += step) if (order[n].length) return nearest(n); return chosen; };
      const does = {
        ArrowRight: () => choose(some[Math.min(some.length - 1, place + 1)] || null, true),
        ArrowLeft: () => choose(some[Math.max(0, place - 1)] || null, true),
        ArrowDown: () => choose(chosen ? beside(1) : some[0] || null, true),
        ArrowUp: () => choose(chosen ? beside(-1) : some[0] || null, true),
        Enter: () => chosen && go(chosen.item),
        "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), 0: () => show(0, whole),
      }[event.key];
      if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      does();
    });
    $("zoom-in").addEventListener("click", () => zoom(2));
    $("zoom-out").addEventListener("click", () => zoom(0.5));
    $("zoom-all").addEventListener("click", () => show(0, whole));
    new ResizeObserver(size).observe(canvas.parentElement);

    const seen = new Set(attempts.map((one) => one.outcome));
    for (const outcome of ORDER.filter((one) => seen.has(one))) put($("legend"), put(make("li"), badge(outcome)));
    put($("legend"), put(make("li"), badge("start")), make("li", "paler: set-up and teardown"), make("li", "▾ a worker died (red) or was replaced"), make("li", "curve: tried again"));
    $("legend").querySelector(".start").parentElement.lastChild.textContent = "a worker starts";
    for (const [said, item] of data.reasons) put($("reasons"), put(make("li", said), item === null ? null : document.createTextNode(" "), item === null ? null : opener(item, "show")));
    return { choose, recolour };
  })();

  // ------------------------------------------------------------------ one test

  let cameFrom = null;
  function go(index) {
    cameFrom = document.activeElement;
    const link = `#item=${encodeURIComponent(data.ids[index])}`;
    if (location.hash === link) follow(); else location.hash = link;
  }
  function follow() {
    const found = /^#item=(.*)$/.exec(location.hash);
    let id = "";
    try { id = found ? decodeURIComponent(found[1]) : ""; } catch { id = found[1]; }
    if (found && !known.has(id)) {
      $("trouble").hidden = false;
      $("trouble").textContent = `There is no test ${id} in this run.`;
    }
    if (known.has(id)) open(known.get(id)); else close();
  }
  function close() {
    if ($("detail").hidden) return;
    $("detail").hidden = true;
    current = -1;
    for (const row of rows.values()) row.classList.remove("on");
    if (location.hash.startsWith("#item=")) history.replaceState(null, "", location.pathname + location.search);
    if (cameFrom && cameFrom.isConnected) cameFrom.focus({ preventScroll: true });
    timeline.choose(null);
  }
  function block(parent, title, shown) {
    if (!shown) return;
    const frame = make("pre", shown);
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", title);
    put(parent, make("h3", title), frame);
  }
  function open(index) {
    const item = items[index], body = $("detail").querySelector(".body"), tries = byItem[index];
    current = index;
    $("detail-title").textContent = item.id;
    body.replaceChildren(put(make("p"), badge(item.verdict, item)), make("p", text(data.why[index])));
    const command = `${data.again} ${quoted(item.id)}`, copy = make("button", "Copy");
    copy.type = "button";
    copy.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(command); copy.textContent = "Copied"; } catch { getSelection().selectAllChildren(shown); }
    });
    const shown = make("pre", command);
    shown.tabIndex = 0;
    shown.setAttribute("role", "region");
    shown.setAttribute("aria-label", "Run it again");
    put(body, put(make("div", "", "top"), make("h3", "Run it again"), copy), shown);
    for (const one of tries) put(body, attemptOf(one));
    if (!tries.length) put(body, make("p", "It was never started."));
    if (item.verdict === "cache-fault") put(body, make("p", "A cache is at fault: see Caches below, and the notes of the run for what was healed."));
    $("detail").hidden = false;
    $("detail").scrollTop = 0;
    $("detail-title").focus({ preventScroll: true });
    for (const [place, row] of rows) row.classList.toggle("on", chosenItems[place].index === index);
    timeline.choose(tries[tries.length - 1] || null);
  }
  function attemptOf(one) {
    const lane = data.lanes[one.lane], made = make("section"), bar = make("div", "", "phases"), told = make("dl");
    const length = one.end - one.begin, spent = one.phases.map(([letter, s]) => `${PHASES[letter] || letter} ${seconds(s)}`).join(", ");
    for (const [letter, s] of one.phases) {
      const part = make("span", "", PHASES[letter] || "call");
      part.style.background = `var(--${one.outcome})`;
      part.style.flexGrow = Math.max(s, length / 500);
      put(bar, part);
    }
    const facts = {
      Outcome: one.outcome + (one.told.cut ? `, cut off in ${one.told.cut}` : ""),
      Where: `${lane.device || lane.slot}, worker ${one.worker}, ${one.warm ? "warm: other tests ran there before" : "fresh"}`,
      When: `${seconds(one.begin)} after the start, for ${seconds(length)}`,
      Phases: spent,
      "Left behind": (one.told.dirt || []).map(([kind, what]) => `${kind}: ${what}`).join("; "),
      Reason: text(one.told.reason),
    };
    for (const [name, value] of Object.entries(facts)) if (value) put(told, make("dt", name), make("dd", value));
    put(made, make("h3", `Attempt ${one.turn}`), bar, told);
    block(made, "Failure", text(one.told.text));
    block(made, "Stacks", text(one.told.stacks));
    for (const [name, at] of Object.entries(one.told.output || {})) block(made, name, text(at));
    return made;
  }

  // ------------------------------------------------------------------ light and dark, paper, links

  const THEMES = ["auto", "light", "dark"];
  function theme(name) {
    if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
    $("theme").textContent = `Theme: ${name}`;
    timeline.recolour();
  }
  function stored() {
    try { return THEMES.includes(localStorage.ondolTheme) ? localStorage.ondolTheme : "auto"; } catch { return "auto"; }
  }
  $("theme").addEventListener("click", () => {
    const now = $("theme").textContent.replace("Theme: ", ""), next = THEMES[(THEMES.indexOf(now) + 1) % 3];
    try { localStorage.ondolTheme = next; } catch { /* a private window */ }
    theme(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline.recolour());
  addEventListener("beforeprint", () => { everyRow = true; document.documentElement.dataset.theme = "light"; timeline.recolour(); drawRows(); });
  addEventListener("afterprint", () => { everyRow = false; theme(stored()); drawRows(); });
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  $("close").addEventListener("click", close);

  showHead(); showFailures(); showSuspects(); showSlowest(); showDevices(); showCache(); showRun();
  prepareList();
  theme(stored());
  follow();
  document.documentElement.dataset.ready = "yes";
})();
