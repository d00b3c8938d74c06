"use strict";

// Everything on the page comes from the service it was loaded from, and is put there as text.

const EVERY = 2000;  // milliseconds between two updates
const COLOURS = 7;   // classes with a colour of their own in a drawing
const SVG = "http://www.w3.org/2000/svg";
const byId = id => document.getElementById(id);

// ---------------------------------------------------------------- the service

class Refused extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  const body = parsed(await answer.text());
  if (!answer.ok) throw new Refused(answer.status, body.error);
  return body;
}

// Integers beyond 2^53 would lose digits as numbers: they are read as BigInt.
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LARGE = "a large integer";

function parsed(text) {
  const marked = text.replace(TOKENS, token =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `{"${LARGE}":"${token}"}` : token);
  return JSON.parse(marked, (_, value) =>
    value !== null && typeof value === "object" && Object.hasOwn(value, LARGE) ? BigInt(value[LARGE]) : value);
}

const isInteger = id => typeof id !== "string";

// ---------------------------------------------------------------- making elements

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const whole = number => Number(number).toLocaleString("en");
const percent = share => share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`;
const signed = number => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;
const short = (text, most = 18) => String(text).length > most ? `${String(text).slice(0, most - 1)}…` : String(text);

function bytes(size) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]].find(([u]) => size >= u) || [1, "B"];
  return `${(size / unit).toFixed(unit > 1 && size / unit < 100 ? 1 : 0)} ${name}`;
}

function compact(number) {
  if (number >= 1e6) return `${+(number / 1e6).toPrecision(3)}M`;
  return number >= 1e4 ? `${+(number / 1e3).toPrecision(3)}k` : whole(number);
}

// ---------------------------------------------------------------- numbers

const titled = text => `${text[0].toUpperCase()}${text.slice(1)}`;

function measured(status) {
  if (status.metric === "accuracy")
    return ["Accuracy", percent(status.accuracy), `of ${whole(status.predicted)} predictions before labels came`];
  const error = status.metric === "mean absolute error";
  const value = status.accuracy === null ? "–" : error ? `${+status.accuracy.toPrecision(4)}` : percent(status.accuracy);
  return [titled(status.metric), value,
    `of ${whole(status.predicted)} ${error ? "numbers" : "labels"}, predicted before they came`];
}

function showStatus(status) {
  const tiles = [
    ["Nodes", whole(status.nodes), `${whole(status.labelled)} with a label`],
    ["Edges", whole(status.edges), status.undirected ? "undirected" : "directed"],
    ["Classes", whole(status.classes), status.names.length ? `newest: ${short(status.names.at(-1))}` : "none yet"],
    measured(status),
    ["Memory", bytes(status.memory), "graph, embeddings, head"],
    ["Deltas", whole(status.seq), status.waiting ? `${status.waiting} waiting` : "none waiting"],
  ];
  byId("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, more)))));
}

// ---------------------------------------------------------------- alarms

function showAlarms(alarms) {
  byId("raised").hidden = !alarms.length;
  byId("raised").replaceChildren(...alarms.map(alarm => element("li", {},
    element("strong", {}, "Predictions have become worse"), `${titled(alarm.message)}. `,
    element("span", { class: "soft" }, `Since delta ${whole(alarm.seq)}`))));
}

// ---------------------------------------------------------------- lists

function list(place, columns, rows) {
  const numeric = columns.map((_, i) => rows.every(row => typeof row[i] === "number" || row[i] === "–"));
  const cell = (name, i, value) => element(name, numeric[i] ? { class: "number" } : {},
    typeof value === "number" ? whole(value) : value);
  place.replaceChildren(
    element("thead", {}, element("tr", {}, ...columns.map((name, i) => cell("th", i, name)))),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map((value, i) => cell("td", i, value))))));
}

async function suggest() {
  byId("suggest-said").textContent = "looking…";
  try {
    const { suggestions } = await ask("/v1/suggestions?n=10");
    byId("suggested").hidden = !suggestions.length;
    list(byId("suggestions"), ["Node", "Likeliest", "Next", "Uncertainty", "Nodes it influences", "Gain"], suggestions.map(one =>
      [opener(one.id), likely(one, 0), likely(one, 1), one.uncertainty === undefined ? "–" : percent(one.uncertainty),
        one.reach, +one.gain.toPrecision(3)]));
    byId("suggest-said").textContent = suggestions.length ? "" : "Every node has a label.";
  } catch (error) {
    byId("suggested").hidden = true;
    byId("suggest-said").textContent = error.message;
  }
}

const likely = (one, place) => place < one.classes.length ?
  `${short(one.classes[place], 20)} ${percent(one.probabilities[place])}` : "–";

function opener(id) {
  const button = element("button", { type: "button", title: String(id) }, short(id, 24));
  button.addEventListener("click", () => {
    lookUp(id, isInteger(id));
    byId("lookup").scrollIntoView();
  });
  return button;
}

// ---------------------------------------------------------------- curves

const WIDTH = 520, HEIGHT = 250, LEFT = 56, RIGHT = 50, TOP = 12, BOTTOM = 34;

function scale(from, to, first, last) {
  const span = to - from || 1;
  return value => first + (value - from) / span * (last - first);
}

function ticks(most, count) {
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = Math.max([1, 2, 5, 10].map(m => m * power).find(s => s >= rough), most > 1 ? 1 : 0);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

function chart(place, points, series, lefts, rights, tell) {
  if (points.length < 2) {
    place.replaceChildren(element("p", { class: "empty" }, "A curve begins with the second delta that brings labels."));
    return;
  }
  const x = scale(points[0].seq, points.at(-1).seq, LEFT, WIDTH - RIGHT);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": tell(points.at(-1)) });
  for (const { y, text } of lefts) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }),
      shape("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, text));
  }
  for (const { y, text } of rights) svg.append(shape("text", { x: WIDTH - RIGHT + 8, y: y + 4 }, text));
  const first = points[0].seq, last = points.at(-1).seq;
  for (const [seq, anchor] of [[first, "start"], [last, "end"]]) {
    svg.append(shape("text", { x: x(seq), y: HEIGHT - 12, "text-anchor": anchor }, `delta ${whole(seq)}`));
  }
  for (const { kind, y } of series) {
    const path = points.map((p, i) => `${i ? "L" : "M"}${x(p.seq).toFixed(1)} ${y(p, i).toFixed(1)}`).join("");
    svg.append(shape("path", { class: `line ${kind}`, d: path }));
  }
  follow(svg, points, x, tell);
  place.replaceChildren(svg);
}

function follow(svg, points, x, tell) {
  const cursor = shape("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const readout = shape("text", { class: "readout", y: HEIGHT - 12, x: (LEFT + WIDTH - RIGHT) / 2, "text-anchor": "middle" });
  svg.append(cursor, readout);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    const near = points.reduce((a, b) => Math.abs(x(b.seq) - at) < Math.abs(x(a.seq) - at) ? b : a);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(near.seq));
    cursor.setAttribute("visibility", "visible");
    readout.textContent = tell(near);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = "";
  });
}

function showCurves(curve, metric) {
  let asked = 0, right = 0;
  const points = curve.map(point => {
    asked += point.asked;
    right += point.right;
    return { ...point, now: point.right / point.asked, ever: right / asked };
  });
  byId("measured").textContent = metric === "accuracy" ? "Correct predictions" : titled(metric);
  const error = metric === "mean absolute error";
  const most = error ? Math.max(...points.map(p => Math.max(p.now, p.ever)), 1e-9) : 1;
  const shownAs = value => error ? `${+value.toPrecision(3)}` : percent(value);
  const share = scale(0, most, HEIGHT - BOTTOM, TOP);
  chart(byId("accuracy"), points,
    [{ kind: "one", y: p => share(p.now) }, { kind: "two", y: p => share(p.ever) }],
    [0, .25, .5, .75, 1].map(part => ({ y: share(most * part), text: error ? shownAs(most * part) : `${100 * part} %` })), [],
    p => `${shownAs(p.now)} · overall ${shownAs(p.ever)}`);
  const [classes, nodes] = ["classes", "nodes"].map(name => Math.max(1, ...points.map(p => p[name])));
  const [left, rightAxis] = [classes, nodes].map(most => scale(0, most, HEIGHT - BOTTOM, TOP));
  chart(byId("growth"), points,
    [{ kind: "three", y: p => rightAxis(p.nodes) }, { kind: "two", y: p => left(p.classes) }],
    ticks(classes, 4).map(value => ({ y: left(value), text: whole(value) })),
    ticks(nodes, 4).map(value => ({ y: rightAxis(value), text: compact(value) })),
    p => `${whole(p.classes)} classes · ${whole(p.nodes)} nodes`);
}

// ---------------------------------------------------------------- confusion

function showConfusion(names, counts) {
  if (!names.length) {
    byId("confusion").replaceChildren(element("p", { class: "empty" }, "No class is known yet."));
    return;
  }
  const titles = [...names, "any other"];
  const head = element("tr", {}, element("th", { class: "side" }),
    ...titles.map(name => element("th", { scope: "col", title: name }, short(name, 12))));
  const rows = counts.map((row, i) => {
    const total = row.reduce((a, b) => a + b, 0);
    const cells = row.map((count, j) => {
      const title = `${count} of ${total} nodes of ${names[i]} classified as ${titles[j]}`;
      const cell = element("td", { title, class: i === j ? "right" : count ? "" : "none" }, count ? whole(count) : "·");
      cell.style.setProperty("--share", total ? count / total : 0);
      return cell;
    });
    return element("tr", {}, element("th", { class: "side", scope: "row", title: names[i] }, short(names[i], 16)), ...cells);
  });
  byId("confusion").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

// ---------------------------------------------------------------- a node

async function lookUp(id, integer = false) {
  byId("node").value = id;
  byId("lookup-said").textContent = "looking…";
  try {
    const found = await ask(`/v1/nodes?node=${encodeURIComponent(id)}${integer ? "&integer=true" : ""}`);
    byId("found").hidden = false;
    const hues = huesOf(found);
    showNetwork(found, hues);
    showWhy(found, hues);
    byId("lookup-said").textContent = "";
  } catch (error) {
    byId("found").hidden = true;
    byId("lookup-said").textContent = error.message;
  }
}

// The classes that matter most for this node have colours of their own.
function huesOf(found) {
  const order = [...found.classes, ...found.neighbours.map(n => n.label).filter(label => label !== null)];
  const distinct = [...new Map(order.map(label => [key(label), label])).keys()];
  const hues = new Map(distinct.slice(0, COLOURS).map((name, i) => [name, `c${i}`]));
  return label => label === null || label === undefined ? "other" : hues.get(key(label)) || "other";
}

const key = label => `${typeof label} ${label}`;  // 1 and "1" are two classes

function showNetwork(found, hues) {
  const spots = arrange(found.neighbours, found.edges);
  const most = Math.max(...found.neighbours.map(n => Math.abs(n.weight || 0)), 1e-9);
  const svg = shape("svg", { viewBox: "0 0 520 400", role: "group", "aria-label": "Its surroundings" });
  for (const [a, b] of found.edges) {
    svg.append(shape("line", { class: "edge", x1: spots[a].x, y1: spots[a].y, x2: spots[b].x, y2: spots[b].y }));
  }
  found.neighbours.slice().reverse().forEach((neighbour, from) => {
    const i = found.neighbours.length - 1 - from;
    svg.append(spot(neighbour, i, spots[i], 4.5 + 9 * Math.sqrt(Math.abs(neighbour.weight || 0) / most), hues));
  });
  byId("network").replaceChildren(svg);
  const count = found.neighbours.length - 1;
  byId("drawn").textContent = `${count} ${count === 1 ? "node" : "nodes"} around it${found.whole ? "" : ", the nearest of more"}`;
  showLegend(found, hues);
}

function spot(neighbour, i, at, radius, hues) {
  const known = neighbour.label !== null;
  const kinds = ["node", hues(neighbour.label), i ? "" : "centre", known ? "" : "open"].filter(Boolean);
  const weight = neighbour.weight === null ? "" : `, ${(100 * neighbour.weight).toFixed(1)} % of its features`;
  const title = `${neighbour.id}: ${known ? neighbour.label : "no label"}, ${neighbour.hops} hops away${weight}`;
  const circle = shape("circle", { class: kinds.join(" "), cx: at.x, cy: at.y, r: radius });
  const group = shape("g", { class: "spot", tabindex: 0, role: "button", "aria-label": title }, shape("title", {}, title), circle);
  if (!i) group.append(shape("text", { x: at.x, y: at.y - radius - 6, "text-anchor": "middle" }, short(neighbour.id)));
  const open = () => lookUp(neighbour.id, isInteger(neighbour.id));
  group.addEventListener("click", open);
  group.addEventListener("keydown", event => { if (event.key === "Enter") open(); });
  return group;
}

function showLegend(found, hues) {
  const labels = [...new Map(found.neighbours.filter(n => n.label !== null).map(n => [key(n.label), n.label])).values()];
  const named = labels.filter(label => hues(label) !== "other").sort((a, b) => hues(a) < hues(b) ? -1 : 1);
  const items = named.map(label => element("li", {}, element("i", { class: hues(label) }), short(label, 24)));
  if (named.length < labels.length) items.push(element("li", {}, element("i", { class: "other" }), "other classes"));
  if (found.neighbours.some(n => n.label === null)) items.push(element("li", {}, element("i", { class: "open" }), "no label"));
  byId("legend").replaceChildren(...items);
}

// Nodes push each other away, edges pull; rings by distance to begin with. Always the same drawing.
function arrange(nodes, edges) {
  const spots = nodes.map((node, i) => {
    const angle = 2.399963 * i;
    return { x: node.hops * 70 * Math.cos(angle), y: node.hops * 70 * Math.sin(angle) };
  });
  for (let step = 0; step < 300; step++) {
    const heat = 12 * (1 - step / 300) + .1, moves = spots.map(() => ({ x: 0, y: 0 }));
    push(spots, moves);
    pull(spots, moves, edges);
    spots.forEach((at, i) => {
      const { x, y } = moves[i], length = Math.hypot(x, y) || 1;
      at.x += x / length * Math.min(length, heat) - .012 * at.x;
      at.y += y / length * Math.min(length, heat) - .012 * at.y;
    });
  }
  return fitted(spots);
}

function push(spots, moves) {
  for (let a = 0; a < spots.length; a++) {
    for (let b = 0; b < a; b++) {
      const dx = spots[a].x - spots[b].x || .01, dy = spots[a].y - spots[b].y || .01;
      const force = 1400 / (dx * dx + dy * dy);
      moves[a].x += dx * force; moves[a].y += dy * force;
      moves[b].x -= dx * force; moves[b].y -= dy * force;
    }
  }
}

function pull(spots, moves, edges) {
  for (const [a, b] of edges) {
    const dx = spots[b].x - spots[a].x, dy = spots[b].y - spots[a].y, force = .04;
    moves[a].x += dx * force; moves[a].y += dy * force;
    moves[b].x -= dx * force; moves[b].y -= dy * force;
  }
}

function fitted(spots) {
  const box = axis => [Math.min(...spots.map(s => s[axis])), Math.max(...spots.map(s => s[axis]))];
  const [left, right] = box("x"), [top, bottom] = box("y");
  const grow = Math.min(440 / (right - left || 1), 310 / (bottom - top || 1), 2.2);
  return spots.map(({ x, y }) => ({
    x: +(260 + grow * (x - (left + right) / 2)).toFixed(1),
    y: +(205 + grow * (y - (top + bottom) / 2)).toFixed(1),
  }));
}

// ---------------------------------------------------------------- why

function showWhy(found, hues) {
  const label = found.known === null ? "It is not labelled." :
    key(found.known) === key(found.label) ? "That is its label." : `Its label is ${found.known}.`;
  const parts = [
    element("p", { class: "verdict" }, `${short(found.id, 40)} is ${found.probability === null ? "predicted to be" : "classified as"} ${found.label}`),
    element("p", { class: "soft" }, found.probability === null ? label : `With probability ${percent(found.probability)}. ${label}`),
    bars(found.classes.map((label, i) => ({ name: label, share: found.probabilities[i], text: percent(found.probabilities[i]), hue: hues(label) }))),
  ];
  byId("why").replaceChildren(...parts, ...(found.voices ? voices(found, hues) : [element("p", { class: "soft" },
    "Contributions of neighbours are available for a linear f_topo and a linear head only.")]));
}

function voices(found, hues) {
  const most = Math.max(...found.voices.map(v => Math.abs(v.says[0])), 1e-9);
  const shown = found.voices.slice(0, 8);
  const others = found.others[0] + found.voices.slice(8).reduce((sum, voice) => sum + voice.says[0], 0);
  const lines = shown.map(voice => ({
    name: voice.id, share: Math.abs(voice.says[0]) / most, text: signed(voice.says[0]), hue: hues(voice.label),
    open: () => lookUp(voice.id, isInteger(voice.id)),
    title: `${voice.id}: ${voice.label === null ? "no label" : voice.label}`,
  }));
  const sums = new Map();
  for (const voice of found.voices) {
    const name = voice.label === null ? "no label" : voice.label, known = key(voice.label);
    const sum = sums.get(known) || { name, label: voice.label, value: 0 };
    sums.set(known, { ...sum, value: sum.value + voice.says[0] });
  }
  const groups = [...sums.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 5);
  const loudest = Math.max(...groups.map(g => Math.abs(g.value)), 1e-9);
  return [
    element("h3", {}, `Contributions to ${short(`${found.label}`, 24)}, by class of the neighbour`),
    bars(groups.map(g => ({ name: g.name, share: Math.abs(g.value) / loudest, text: signed(g.value), hue: hues(g.label) }))),
    element("h3", {}, "The nodes that contribute most"),
    bars(lines),
    element("p", { class: "soft" }, `Points of its score of ${found.scores[0].toFixed(2)}; all other nodes add ${signed(others)}. A hollow bar counts against the class. All contributions add up to the score.`),
  ];
}

function bars(lines) {
  return element("ul", { class: "bars" }, ...lines.map(({ name, share, text, hue, open, title }) => {
    const fillBar = element("span", { class: `fill ${hue}${text.startsWith("−") ? " against" : ""}` });
    fillBar.style.setProperty("--share", share);
    const label = open ? element("button", { type: "button" }, String(name)) : String(name);
    if (open) label.addEventListener("click", open);
    return element("li", { title: title || name }, element("span", { class: "name" }, label),
      element("span", { class: "track" }, fillBar), element("span", { class: "number" }, text));
  }));
}

// ---------------------------------------------------------------- keeping up

let shown = -1;

async function keepUp() {
  try {
    if (!document.hidden || shown < 0) {
      const status = await ask("/v1/status");
      showStatus(status);
      if (status.seq !== shown) {
        showAlarms((await ask("/v1/alarms")).alarms);
        const history = await ask("/v1/history");
        showCurves(history.curve, status.metric);
        showConfusion(history.newest, history.confusion);
        shown = status.seq;
      }
      say("live", status.stopped ? `writes are suspended: ${status.stopped}` : `live, ${whole(status.seq)} deltas applied`);
      byId("token-form").hidden = true;
    }
  } catch (error) {
    const locked = error.status === 401;
    byId("token-form").hidden = !locked;
    say("lost", locked ? "a token is needed" : error.status ? error.message : "the service does not answer; trying again");
  }
  setTimeout(keepUp, EVERY);
}

function say(kind, text) {
  byId("dot").className = `dot ${kind}`;
  if (byId("said").textContent !== text) byId("said").textContent = text;
}

byId("token-form").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value.trim());
  byId("token").value = "";
  shown = -1;
});
byId("suggest").addEventListener("submit", event => {
  event.preventDefault();
  suggest();
});
byId("lookup").addEventListener("submit", event => {
  event.preventDefault();
  if (byId("node").value) lookUp(byId("node").value);
});
keepUp();

// Mark tables that are wider than their box, and whether there is more to the right.
for (const box of document.querySelectorAll(".scroll")) {
  const look = () => {
    const beyond = box.scrollWidth - box.clientWidth;
    box.classList.toggle("wide", beyond > 1);
    box.classList.toggle("more", beyond - box.scrollLeft > 1);
  };
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
  new MutationObserver(look).observe(box, { childList: true, subtree: true });
}
