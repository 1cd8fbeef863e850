"use strict";
// All that is shown goes through textContent: texts are not trusted.
const titles = {
  single_label: "Classify a text", multi_label: "Label a text",
  regression: "Rate a text", question_answering: "Answer a question",
  tagging: "Label words", features: "Compare texts",
  fill_mask: "Guess masked words", multiple_choice: "Choose an answer",
};
const texts = [["I would watch it again tomorrow."], ["Free entry: text WIN to 80086 now!"],
  ["The plot is thin, but the cast is wonderful."]];
const context = "Ada Lovelace was born in London in 1815. She wrote notes on the Analytical " +
  "Engine, a machine that Charles Babbage designed.";
const examples = {
  question_answering: [["Where was Ada Lovelace born?", context],
    ["Who designed the Analytical Engine?", context], ["What did she eat?", context]],
  tagging: [["Ada Lovelace met Charles Babbage in London."],
    ["Siemens opened an office in Lima."], ["Nobody came."]],
  multiple_choice: [
    ["A man opens an umbrella.", "", "It rains.\nHe swims.\nThe cat sings."],
    ["She puts the kettle on.", "", "She makes tea.\nShe plants a tree."],
    ["The band stops playing.", "", "People clap.\nThe sea is green."]],
  features: [
    ["The weather is lovely today.\nIt is sunny outside.\nA man plays the guitar.\nHe drove to the stadium."],
    ["How do I change my password?\nI forgot the code to log in.\nWhere is my parcel?"], ["A dog runs on grass."]],
  fill_mask: [["Paris is the [MASK] of France."], ["She [MASK] the door."],
    ["The best [MASK] I have ever [MASK]."]],
};
const pairs = [["A dog runs on grass.", "An animal is outside."], ["It rains.", "It is dry."],
  ["How old are you?", "What is your age?"]];
// Okabe and Ito's colours, which colour-blind eyes tell apart.
const colours = [[230, 159, 0], [86, 180, 233], [0, 158, 115], [204, 121, 167],
  [213, 94, 0], [0, 114, 178], [240, 228, 66], [150, 150, 150]];
const $ = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
// Math.max(...values) takes no more than some hundred thousand.
const largest = (values) => values.reduce((a, b) => Math.max(a, b));
const sorted = (object) => Object.entries(object).sort((a, b) => b[1] - a[1]);
let model, request, last, maps, chosen = [0, 0], table = [], turn = 0;
let searched = null;  // The lines of a file, as [number, text, vector], to search in.

function make(name, text = "", parent = null, className = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  if (parent) parent.append(node);
  return node;
}

function draw(parent, name, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent?.append(node);
  return node;
}

async function ask(path, body) {
  const response = await fetch(path, body && { method: "POST",
    body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  if (response.ok) return response.json();
  const text = await response.text();
  let message = text;  // Of the server itself, not of what is behind it.
  try { message = JSON.parse(text).error; } catch { }
  throw new Error(message || `status ${response.status}`);
}

// Asks for many answers, in bodies that the server takes.
async function askAll(inputs, isNewest) {
  const outputs = [];
  while (isNewest() && outputs.length < inputs.length) {
    const first = outputs.length, part = [];
    let room = model.max_request_bytes / 4;  // Of UTF-16 units, of 3 bytes at most.
    for (const input of inputs.slice(first, first + 256)) {
      room -= JSON.stringify(input).length + 1;
      if (part.length && room < 0) break;
      part.push(input);
    }
    try { outputs.push(...(await ask("predict", { inputs: part })).outputs); } catch (error) {
      throw new Error(error.message.replace(/^inputs\[(\d+)/, (_, n) => `inputs[${first + Number(n)}`));
    }
  }
  return outputs;
}

// The first ones, which are the answer, are large; long names stand above their bars.
function bars(parent, rows, answers = 1) {
  rows.forEach(([name, share], index) => {
    const row = make("div", "", parent, index < answers ? "row best" : "row");
    row.classList.toggle("long", name.length > 24);
    make(index < answers ? "h2" : "b", name, row);
    make("div", "", make("div", "", row, "track"), "bar").style.width = `${100 * share}%`;
    make("i", percent(share), row).title = share.toPrecision(6);
  });
}

// The types of entities: none for labels that mark none.
function entityTypes(labels) {
  if (!labels.includes("O") || !labels.every((l) => /^(O$|[BIESML](-|$))/.test(l))) return [];
  return [...new Set(labels.map((l) => l.split("-").slice(1).join("-")).filter(Boolean))].sort();
}

// The places in spans are of characters, not of JavaScript's 16-bit units.
function highlight(box, text, spans) {
  const characters = [...text];
  let place = 0;
  for (const { start, end, note, colour, strength } of spans) {
    box.append(characters.slice(place, start).join(""));
    const mark = make("mark", characters.slice(start, end).join(""), box);
    paint(mark, colour, strength);
    mark.title = `${note || ""} ${percent(strength)}`.trim();
    if (note) make("small", note, mark);
    place = end;
  }
  box.append(characters.slice(place).join(""));
}

function paint(mark, colour, strength) {
  mark.style.background = `rgba(${colour}, ${0.08 + 0.5 * strength})`;
  mark.style.borderColor = `rgb(${colour})`;
}

const show = {
  single_label(box, a) { bars(box, sorted(a.probabilities)); },
  multi_label(box, a) {
    // Thresholds differ by label: one that is given can be less probable.
    const rows = sorted(a.probabilities), isGiven = ([label]) => a.labels.includes(label);
    if (!a.labels.length) make("h2", "no label", box);
    bars(box, [...rows.filter(isGiven), ...rows.filter((row) => !isGiven(row))], a.labels.length);
  },
  regression(box, a) { make("h2", a.value.toFixed(3), box); },
  question_answering(box, a) {
    const best = [{ ...a, answer: a.answer || "no answer" }, ...a.runners_up];
    if (a.answer && "no_answer_odds" in a) {
      best.push({ answer: "no answer", start: null,
        probability: a.probability * Math.exp(a.no_answer_odds) });
    }
    const [first, ...rest] = best;
    rest.sort((x, y) => y.probability - x.probability);
    const shown = [first, ...rest].slice(0, 5);
    bars(box, shown.map((x) => [x.answer, Math.min(1, x.probability)]));
    const spans = [];
    for (const span of shown) {
      const { start, end, probability } = span, note = span === first ? "answer" : "";
      if (start === null || spans.some((s) => start < s.end && s.start < end)) continue;
      spans.push({ start, end, note, strength: probability, colour: colours[spans.length] });
    }
    spans.sort((x, y) => x.start - y.start);
    highlight(make("p", "", box, "text"), request.context, spans);
  },
  tagging(box, a) {
    const found = a.entities || a.words.map((w) => ({ ...w, type: w.label }));
    const types = a.entities ? entityTypes(model.labels) : [...model.labels].sort();
    // Tags such as B and E alone have no type.
    const colour = (type) => colours[Math.max(0, types.indexOf(type)) % colours.length];
    const legend = make("p", "", box, "legend");
    for (const type of types) paint(make("mark", type, legend), colour(type), 1);
    make("small", "the stronger, the more probable", legend);
    highlight(make("p", "", box, "text"), request.text, found.map((e) => (
      { ...e, note: e.type, strength: e.probability, colour: colour(e.type) })));
    if (!found.length) make("p", "no entities", box);
  },
  multiple_choice(box, a) {
    const choices = lines(request.choices);
    bars(box, choices.map((c, i) => [c, a.probabilities[i]]).sort((x, y) => y[1] - x[1]));
  },
  features(box, a) {
    if (a.vectors) return heatMap(box, a.texts, a.vectors);
    make("p", `${a.vector.length} numbers`, box);
    make("p", a.vector.map((x) => x.toFixed(4)).join(" "), box, "text");
  },
  fill_mask(box, a) {
    if (!a.masks.length) make("p", "Put [MASK] where a word is missing.", box);
    for (const guesses of a.masks) {
      bars(box, guesses.map((g) => [g.token, g.probability]));
      make("hr", "", box);
    }
  },
};
// An answer of a kind that this file does not know, such as that of docs/new_task.md.
const showPlainly = (box, a) => make("pre", JSON.stringify(a, null, 2), box);
// Whether Python calls a line blank.
const isBlank = (line) => !/[^\s\x1c-\x1f\x85]|\ufeff/.test(line);
// The choices as the server finds them.
const lines = (text) => text.split("\n").filter((line) => !isBlank(line));

// Texts whose vectors are compared, a line each.
const compared = (asked) => (model.kind === "features" ? lines(asked.text) : []);

function cosine(a, b) {
  let product = 0, squares = [0, 0];
  a.forEach((x, i) => {
    product += x * b[i];
    squares = [squares[0] + x * x, squares[1] + b[i] * b[i]];
  });
  return product / Math.sqrt(squares[0] * squares[1] || 1);
}

function shade(cell, share) {
  cell.style.background = share > 0 ? `rgba(${strong()}, ${0.6 * share})` : `rgba(${colours[4]}, ${-0.6 * share})`;
}

function heatMap(box, texts, vectors) {
  make("p", "How similar the lines are: the cosines of their vectors", box);
  const grid = make("table", "", make("div", "", box, "wide"), "heat");
  const head = make("tr", "", grid);
  ["", ...texts].forEach((text, i) => { make("th", i ? String(i) : "", head).title = text; });
  texts.forEach((text, i) => {
    const row = make("tr", "", grid);
    make("th", `${i + 1}  ${text}`, row).title = text;
    vectors.forEach((other) => {
      const share = cosine(vectors[i], other);
      shade(make("td", share.toFixed(2), row), share);
    });
  });
}

// Orders the lines of a file by their similarity to the first line asked.
function search() {
  const query = last?.vector ?? last?.vectors?.[0];
  if (!searched || !query) return;
  const rows = searched.map(([number, text, vector]) => [cosine(query, vector), number, text]);
  rows.sort((a, b) => b[0] - a[0]);
  table = [["similarity", "line", "text"], ...rows.map(([share, ...rest]) => [share.toFixed(4), ...rest])];
  showTable(`Most similar to: ${compared(request)[0]}`);
}

// What one more or less word may change: the probability of the same answer.
function certainty(a, of) {
  if (of.label !== undefined) return a.probabilities[of.label];
  if (of.labels) return Math.max(...sorted(of.probabilities).slice(0, 1).map(([l]) => a.probabilities[l]));
  if (of.predicted !== undefined) return a.probabilities[of.predicted];
  if (of.value !== undefined) return a.value;
  const same = [a, ...a.runners_up].find((x) => x.answer === of.answer);
  if (same || of.answer) return same?.probability ?? 0;
  return a.probability * Math.exp(a.no_answer_odds);  // Of no answer.
}

// Runs one action at a time; what an older one brings is not shown.
async function guarded(button, action) {
  const mine = ++turn, spinner = make("span", "", null, "spinner");
  $("error").textContent = "";
  button?.after(spinner);
  try { await action(() => mine === turn); } catch (error) {
    if (mine === turn) {
      for (const id of ["answer", "note"]) $(id).replaceChildren();
      for (const id of ["words", "attention"]) $(id).hidden = true;
      $("error").textContent = error.message;
    }
  } finally { spinner.remove(); }
}

function read() {
  const found = {};
  for (const { name } of model.inputs) found[name] = $(`in-${name}`).value;
  return found;
}

async function submit(isNewest) {
  const asked = read();
  if (!Object.values(asked).some((text) => text.trim())) throw new Error("Nothing to answer: type a text.");
  const start = performance.now();
  const texts = compared(asked);
  let answer;
  if (texts.length > 50) throw new Error(`${texts.length} lines to compare, expected 50 at most`);
  if (texts.length > 1) {
    const outputs = await askAll(texts.map((text) => ({ text })), isNewest);
    answer = { texts, vectors: outputs.map((a) => a.vector), truncated: outputs.some((a) => a.truncated) };
  } else answer = await ask("predict", asked);
  if (!isNewest()) return;
  [request, last, maps] = [asked, answer, null];
  $("answer").replaceChildren();
  (show[model.kind] ?? showPlainly)($("answer"), answer);
  search();
  $("note").textContent = `${(performance.now() - start).toFixed(0)} ms` + (answer.truncated
    ? `; longer than ${model.max_seq_length} tokens, the rest was left out` : "");
  for (const id of ["heads", "map", "shaded", "weighed"]) $(id).replaceChildren();
  $("views").hidden = true;
  // Of these, and of kinds that are not known, no number says how certain the answer is.
  $("words").hidden = !(model.kind in show) || ["tagging", "features", "fill_mask"].includes(model.kind);
  $("attention").hidden = !model.num_heads || texts.length > 1;
}

async function weigh(isNewest) {
  const name = model.kind === "question_answering" ? "question" : model.inputs.find((i) => request[i.name].trim()).name;
  const parts = request[name].split(/(\s+)/), places = [];
  parts.forEach((part, i) => { if (part.trim()) places.push(i); });
  const others = model.inputs.filter((i) => ![name, "choices"].includes(i.name));
  if (places.length < 2 && !others.some((i) => request[i.name].trim())) {
    $("shaded").replaceChildren();
    $("weighed").textContent = `the ${name} has only one word`;
    return;
  }
  const used = places.slice(0, model.max_requests);
  const without = used.map((i) => ({ ...request, [name]: parts.filter((_, j) => j !== i).join("") }));
  const outputs = await askAll(without, isNewest);
  if (!isNewest()) return;
  const base = certainty(last, last), drops = outputs.map((a) => base - certainty(a, last));
  const most = Math.max(1e-6, ...drops.map(Math.abs)), box = $("shaded");
  box.replaceChildren();
  parts.forEach((part, i) => {
    const drop = drops[used.indexOf(i)];
    if (drop === undefined) return box.append(part);
    const mark = make("mark", part, box);
    paint(mark, drop >= 0 ? colours[1] : colours[4], Math.abs(drop) / most);
    mark.title = `${drop >= 0 ? "\u2212" : "+"}${Math.abs(drop).toFixed(4)} without it`;
  });
  $("weighed").textContent = `of the ${name}: blue speaks for the answer, orange against it; ` +
    `the strongest word changes it by ${most.toFixed(3)}`;
}

// Attention: maps[layer][head] is a Float32Array of S * S.
async function attend(isNewest) {
  const { tokens, attention } = await ask("attention", request);
  if (!isNewest()) return;
  const bytes = Uint8Array.from(atob(attention), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer), size = tokens.length;
  const at = (i) => view.getUint16(2 * i, true) / 65535;
  const { num_layers: layers, num_heads: heads } = model;
  const all = Array.from({ length: layers }, (_, l) => Array.from({ length: heads }, (_, h) =>
    Float32Array.from({ length: size * size }, (_, i) => at((l * heads + h) * size * size + i))));
  const flat = all.flat();
  const mean = new Float32Array(size * size).map((_, i) =>
    flat.reduce((sum, map) => sum + map[i], 0) / (layers * heads));
  maps = { tokens, all, mean };
  const grid = $("heads");
  grid.replaceChildren();
  grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(22px, 60px))`;
  all.forEach((row, l) => {
    make("span", `layer ${l}`, grid);
    row.forEach((map, h) => thumbnail(grid, map, [l, h], `layer ${l}, head ${h}`));
  });
  make("span", "mean", grid);
  thumbnail(grid, mean, null, "mean of all heads");
  $("views").hidden = false;
  choose(chosen);
}

function thumbnail(grid, map, place, name) {
  const button = make("button", "", grid), canvas = make("canvas", "", button);
  const size = canvas.width = canvas.height = maps.tokens.length;
  const context = canvas.getContext("2d"), image = context.createImageData(size, size);
  const most = largest(map);
  const colour = strong().split(",").map(Number);
  map.forEach((share, i) => image.data.set([...colour, 255 * Math.sqrt(share / most)], 4 * i));
  context.putImageData(image, 0, 0);
  button.type = "button";
  button.title = name;
  button.setAttribute("aria-label", name);
  button.dataset.place = place;
  button.addEventListener("click", () => choose(place));
}

function choose(place) {
  chosen = place;
  for (const button of $("heads").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button.dataset.place === String(place));
  }
  $("chosen").textContent = place ? `layer ${place[0]}, head ${place[1]}` : "mean of all heads";
  $("map").replaceChildren(($("arcs").checked ? drawArcs : drawMap)(
    place ? maps.all[place[0]][place[1]] : maps.mean, maps.tokens));
}

const strong = () => getComputedStyle(document.documentElement).getPropertyValue("--strong").trim();

function canvasOf(width, height) {
  const style = getComputedStyle(document.body);
  const svg = draw(null, "svg", { xmlns: "http://www.w3.org/2000/svg", width, height,
    viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 12,
    fill: style.color });
  draw(svg, "rect", { width, height, fill: style.backgroundColor });
  return svg;
}

// Rows are the tokens that look, columns what they look at.
function drawMap(map, tokens) {
  const margin = 90, step = 18, top = 120, size = tokens.length, most = largest(map);
  const colour = `rgb(${strong()})`;
  const svg = canvasOf(margin + step * size + 10, top + step * size), cells = draw(svg, "g", {});
  const stops = draw(draw(draw(svg, "defs", {}), "linearGradient", { id: "scale" }), "stop",
    { offset: 0, "stop-color": colour, "stop-opacity": 0 }).parentNode;
  draw(stops, "stop", { offset: 1, "stop-color": colour });
  draw(svg, "rect", { x: 5, y: 20, width: 78, height: 12, fill: "url(#scale)", stroke: "#888" });
  draw(svg, "text", { x: 5, y: 46 }, "0");
  draw(svg, "text", { x: 83, y: 46, "text-anchor": "end" }, percent(most));
  const labels = draw(svg, "g", { id: "rows" });
  draw(labels, "rect", { x: 0, y: top, width: margin - 2, height: step * size,
    fill: getComputedStyle(document.body).backgroundColor });
  tokens.forEach((token, i) => {
    const middle = top + step * i + 13, short = token.slice(0, 13);
    draw(labels, "text", { x: margin - 6, y: middle, "text-anchor": "end" }, short);
    const x = margin + step * i + 13;
    draw(svg, "text", { x, y: top - 6, transform: `rotate(-90 ${x} ${top - 6})` }, short);
    tokens.forEach((other, j) => {
      const share = map[i * size + j];
      const cell = draw(cells, "rect", { x: margin + step * j, y: top + step * i, width: step - 1,
        height: step - 1, fill: colour, "fill-opacity": (share / most).toFixed(3), "data-cell": "" });
      const tell = () => { $("cell").textContent = `${token} \u2192 ${other}: ${percent(share)}`; };
      for (const event of ["pointerenter", "pointerdown"]) cell.addEventListener(event, tell);
    });
  });
  return svg;
}

function drawArcs(map, tokens) {
  const step = 26, size = tokens.length, most = largest(map), colour = `rgb(${strong()})`;
  const left = 100, right = Math.min(420, $("map").clientWidth - 100);
  const svg = canvasOf(right + 100, step * size + 20);
  tokens.forEach((token, i) => {
    const y = 20 + step * i, short = token.slice(0, 14);
    draw(svg, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, short);
    draw(svg, "text", { x: right + 6, y: y + 4 }, short);
    tokens.forEach((other, j) => {
      const share = map[i * size + j], to = 20 + step * j, middle = (left + right) / 2;
      if (share < most / 50) return;
      const path = draw(svg, "path", { d: `M${left} ${y}C${middle} ${y} ${middle} ${to} ${right} ${to}`,
        fill: "none", stroke: colour, "stroke-width": 3, "stroke-opacity": (share / most).toFixed(3) });
      draw(path, "title", {}, `${token} \u2192 ${other}: ${percent(share)}`);
    });
  });
  return svg;
}

function save(name, kind, text) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Several texts.
function summary(a) {
  const core = a.label ?? a.labels?.join(", ") ?? a.value ?? a.choice ?? a.answer ??
    a.entities?.map((e) => `${e.text} (${e.type})`).join(", ") ?? a.words?.map((w) => w.label).join(" ") ??
    JSON.stringify(a);
  const share = a.label !== undefined ? a.probabilities[a.label] : a.probability ?? a.probabilities?.[a.predicted];
  if (a.masks) return [a.masks.map((m) => m[0].token).join(" "), ""];
  return [a.vector ? a.vector.join(" ") : core, share === undefined ? "" : share.toPrecision(6)];
}

// The inputs in a line of a file.
function parseLine(line, names, file) {
  if (/\.jsonl$/i.test(file.name)) {
    let values;
    try { values = JSON.parse(line); } catch { throw new Error(`${file.name}: not JSON: ${line.slice(0, 80)}`); }
    return Object.fromEntries(names.map((name) => [name, values?.[name]]));
  }
  const cells = names.length > 1 ? line.split("\t") : [line];
  if (names.at(-1) === "choices") cells.splice(2, cells.length, cells.slice(2));
  if (cells.length > names.length) {
    throw new Error(`${file.name}: ${cells.length} columns, expected ${names.join(", ")}: ${line.slice(0, 80)}`);
  }
  return Object.fromEntries(names.map((name, i) => [name, cells[i]]));
}

async function answerFile(file, isNewest) {
  // What an earlier file gave is not of this one.
  [table, searched] = [[], null];
  $("table").replaceChildren();
  $("download").hidden = true;
  $("files").open = true;  // The file may have been dropped on the page.
  if (/\.(csv|json|xlsx?|gz|xz|zip)$/i.test(file.name)) {
    throw new Error(`${file.name}: expected a file of lines, .tsv or .jsonl`);
  }
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch { throw new Error(`${file.name}: not UTF-8`); }
  // Blank lines are left out, but have numbers, as those of search.py.
  const rows = text.replaceAll("\r", "").split("\n").map((line, i) => [i + 1, line])
    .filter(([, line]) => !isBlank(line));
  if (!rows.length) throw new Error(`${file.name}: no lines in it`);
  const names = model.inputs.map((i) => i.name);
  const inputs = rows.map(([, line]) => parseLine(line, names, file));
  const outputs = await askAll(inputs, isNewest);
  if (!isNewest()) return;
  if (model.kind === "features") {
    searched = inputs.map(({ text }, i) => [rows[i][0], text, Float32Array.from(outputs[i].vector)]);
    return search();
  }
  table = [[...names, "answer", "probability"], ...inputs.map((input, i) => (
    [...names.map((name) => [input[name] ?? ""].flat().join(" | ")), ...summary(outputs[i])]))];
  showTable();
}

function showTable(title = "") {
  const count = table.length - 1, part = count > 200 ? `200 of ${count} shown; the download has all` : "";
  $("table").replaceChildren();
  if (title || part) make("caption", [title, part].filter(Boolean).join("; "), $("table"));
  table.slice(0, 201).forEach((cells, i) => {
    const row = make("tr", "", $("table"));
    for (const cell of cells) make(i ? "td" : "th", String(cell).slice(0, 300), row);
  });
  $("download").hidden = false;
}

function refresh() {
  const asked = read(), texts = compared(asked), url = `${location.origin}/predict`;
  for (const area of $("form").querySelectorAll("textarea")) {
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
  }
  const code = JSON.stringify(texts.length > 1 ? texts.map((text) => ({ text })) : asked);
  const body = texts.length > 1 ? `{"inputs":${code}}` : code;
  $("curl").textContent = `curl ${url} -H 'Content-Type: application/json' -d '${body.replaceAll("'", "'\\''")}'`;
  $("python").textContent = `import bert\n\nmodel = bert.load(${JSON.stringify(model.name)})\nprint(model(${code}))`;
  $("link").href = `#${new URLSearchParams(asked)}`;
}

function fill(values) {
  model.inputs.forEach(({ name }, i) => { $(`in-${name}`).value = values[i] ?? ""; });
  refresh();
}

function listen() {
  const form = $("form");
  form.addEventListener("input", refresh);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    guarded($("ask"), submit);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  for (const [id, action] of [["weigh", weigh], ["attend", attend]]) {
    $(id).addEventListener("click", () => guarded($(id), action));
  }
  $("arcs").addEventListener("change", () => choose(chosen));
  $("heads").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -model.num_heads,
      ArrowDown: model.num_heads }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...$("heads").querySelectorAll("button")];
    const next = buttons[buttons.indexOf(document.activeElement) + step];
    next?.focus();
    next?.click();
  });
  // Labels of rows stay while the map scrolls sideways.
  $("map").addEventListener("scroll", () => $("rows")?.setAttribute("transform", `translate(${$("map").scrollLeft} 0)`));
  $("svg").addEventListener("click", () => save("attention.svg", "image/svg+xml", $("map").firstChild.outerHTML));
  $("download").addEventListener("click", () => save("answers.tsv", "text/tab-separated-values",
    table.map((row) => row.map((cell) => String(cell).replace(/[\t\r\n]+/g, " ")).join("\t")).join("\n") + "\n"));
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.addEventListener("click", () => navigator.clipboard.writeText($(button.dataset.copies).textContent));
  }
  const take = (file) => file && guarded($("file"), (isNewest) => answerFile(file, isNewest));
  $("file").addEventListener("change", () => take($("file").files[0]));
  for (const [name, isOver] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    document.body.addEventListener(name, (event) => {
      event.preventDefault();
      document.body.classList.toggle("dropping", isOver);
      if (name === "drop") take(event.dataTransfer.files[0]);
    });
  }
}

async function start() {
  model = await ask("model");
  if (model.kind === "features") {  // Sentences are compared, and no pairs.
    model.inputs = model.inputs.slice(0, 1);
    $("files").querySelector("summary").textContent = "Search in a file for the first line";
  }
  const title = titles[model.kind] ?? model.kind;
  document.title = `${title}: ${model.name}`;
  $("title").textContent = model.name;
  $("facts").textContent = `${title}; ${model.num_layers} layers of ` +
    `${model.num_heads} heads, ${model.format}, at most ${model.max_seq_length} tokens`;
  const types = model.kind === "tagging" ? entityTypes(model.labels) : [];
  if (types.length) $("labels").textContent = `Entities: ${types.join(", ")}`;
  else if (model.labels.length) $("labels").textContent = `Labels: ${model.labels.join(", ")}`;
  const form = $("form");
  for (const { name, required } of model.inputs) {
    const label = make("label", name.replace("_", " ") + (required ? "" : " (optional)"), form);
    const area = make("textarea", "", label);
    area.id = `in-${name}`;
    area.rows = name === "context" || model.kind === "features" ? 4 : 2;
    if (model.kind === "features") area.placeholder = "a text a line";
    if (name === "choices") area.placeholder = "a choice a line";
  }
  const button = make("button", "Answer", form, "main");
  button.id = "ask";
  button.title = "Ctrl+Enter";
  // Examples for texts would be wrong for the inputs of an unknown kind.
  const takesTexts = model.inputs[0].name === "text";
  const tried = examples[model.kind] || (!takesTexts ? [] : model.inputs.length > 1 ? pairs : texts);
  $("examples").hidden = !tried.length;
  for (const values of tried) {
    const shown = (tried === pairs ? values : values.slice(0, 1)).map(
      (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text));
    const choice = make("button", shown.join(" | "), $("examples"));
    choice.type = "button";
    choice.addEventListener("click", () => { fill(values); form.requestSubmit(); });
  }
  listen();
  // A link can hold what is asked: /#text=...
  const asked = new URLSearchParams(location.hash.slice(1));
  fill(asked.size ? model.inputs.map(({ name }) => asked.get(name)) : tried[0] ?? []);
  if (asked.size || tried.length) guarded(button, submit);
}
guarded(null, start);
