"use strict";
// Draws two columns of pieces with a line for each attention weight; its opacity is the weight.
// The data holds weights in thousandths: weights[layer][head][query][key] of each kind, and counts
// layers and heads as places in data.layers and data.heads. Text gets into the page only as text
// nodes and attributes, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const VISIBLE = 10; // thousandths; lines of less weight cannot be seen
const SPREAD = 0.6; // share of a row over which the lines of different heads end
const MOST_NAMED = 5; // weights in the text about a piece
const OPPOSITE = { queries: "keys", keys: "queries" };
const byId = (id) => document.getElementById(id);

const shown = {
  // Attention to the source explains a translation, so the page begins with it where it is shown.
  kind: data.kinds.find(({ queries, keys }) => queries !== keys) ?? data.kinds[0],
  layers: new Set([data.layers.length - 1]),
  heads: new Set(data.heads.keys()),
};
// Positions of pieces as {side, place}. The first of these that is not null is active: only its
// lines are drawn.
const marked = { hovered: null, focused: null, chosen: null };
const active = () => marked.hovered ?? marked.focused ?? marked.chosen;
const isSame = (one, other) => one?.side === other?.side && one?.place === other?.place;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const ascending = (places) => [...places].sort((one, other) => one - other);
const piecesOf = (side) => data.pieces[shown.kind[side]];
const decimal = (weight) => (weight / 1000).toFixed(2);
const quoted = (piece) => element("bdi", {}, `“${piece}”`);

// ---- choices

function choice(type, group, text, isChecked, choose, ...before) {
  const input = element("input", { type, name: group });
  input.checked = isChecked;
  input.addEventListener("change", () => choose(input.checked));
  byId(group).append(element("label", {}, input, ...before, text));
  return input;
}

function choicesOf(group, numbers, redraw, ...decorate) {
  const places = shown[group];
  const inputs = [...numbers.keys()].map((place) => {
    const choose = (isChecked) => {
      if (isChecked) places.add(place);
      else places.delete(place);
      redraw();
    };
    const before = decorate.map((decoration) => decoration(place));
    return choice("checkbox", group, `${numbers[place]}`, places.has(place), choose, ...before);
  });
  if (numbers.length < 3) return;
  for (const [text, isChecked] of [["all", true], ["none", false]]) {
    const button = element("button", { type: "button", "aria-label": `${text} ${group}` }, text);
    button.addEventListener("click", () => {
      for (const [place, input] of inputs.entries()) {
        input.checked = isChecked;
        if (isChecked) places.add(place);
        else places.delete(place);
      }
      redraw();
    });
    byId(group).append(button);
  }
}

function swatch(head) {
  const box = document.createElementNS(SVG, "svg");
  box.setAttribute("class", "swatch");
  box.setAttribute("viewBox", "0 0 20 10");
  box.setAttribute("aria-hidden", "true");
  box.append(line(head, 1000, 0, 5, 20, 5));
  return box;
}

// ---- pictures

function line(head, weight, x1, y1, x2, y2) {
  const made = document.createElementNS(SVG, "line");
  const places = { x1, y1, x2, y2, "stroke-opacity": weight / 1000, class: data.styles[head] };
  for (const [key, value] of Object.entries(places)) made.setAttribute(key, value);
  return made;
}

function column(side, layer) {
  const heading = element("h3", { id: `${side}-${layer}`, class: side });
  heading.append(data.headings[shown.kind[side]]);
  const list = element("ul", {
    role: "listbox",
    class: side,
    lang: data.languages[shown.kind[side]],
    "aria-labelledby": `layer-${layer} ${side}-${layer}`,
  });
  for (const [place, piece] of piecesOf(side).entries()) {
    const option = element("li", { role: "option", dir: "auto", title: piece }, piece);
    option.dataset.side = side;
    option.dataset.place = place;
    option.setAttribute("aria-selected", "false");
    option.tabIndex = place === 0 ? 0 : -1; // one stop of Tab for each list; arrows move inside
    list.append(option);
  }
  return [heading, list];
}

function drawFigures() {
  const rows = Math.max(piecesOf("queries").length, piecesOf("keys").length);
  const figures = ascending(shown.layers).map((layer) => {
    const box = document.createElementNS(SVG, "svg");
    box.setAttribute("viewBox", `0 0 100 ${rows}`);
    box.setAttribute("preserveAspectRatio", "none");
    box.setAttribute("aria-hidden", "true");
    box.dataset.layer = layer;
    const figure = element("div", { class: "figure" }, ...column("queries", layer), box);
    figure.append(...column("keys", layer));
    figure.style.setProperty("--rows", rows);
    const heading = element("h2", { id: `layer-${layer}` }, `Layer ${data.layers[layer]}`);
    return element("section", { "aria-labelledby": `layer-${layer}` }, heading, figure);
  });
  byId("figures").replaceChildren(...figures);
  byId("explanation").textContent = explanation();
  drawLines();
}

function explanation() {
  const text = "Each piece on the left attends to the pieces on the right. Point at a piece, or "
    + "move to it with Tab and the arrow keys, to see only its lines; a click, Enter or the space "
    + "bar keeps them, and Escape shows all lines again.";
  if (shown.kind.queries === "source") return text;
  return `${text} The decoder reads a piece of the target input and predicts the target output `
    + "of the same row.";
}

function* weightsShown() {
  const position = active();
  for (const layer of ascending(shown.layers)) {
    for (const head of ascending(shown.heads)) {
      for (const [query, row] of shown.kind.weights[layer][head].entries()) {
        if (position?.side === "queries" && position.place !== query) continue;
        for (const [key, weight] of row.entries()) {
          if (position?.side === "keys" && position.place !== key) continue;
          if (weight >= VISIBLE) yield { layer, head, query, key, weight };
        }
      }
    }
  }
}

function drawLines() {
  const heads = ascending(shown.heads);
  const shiftOf = (head) => SPREAD * ((heads.indexOf(head) + 0.5) / heads.length - 0.5) + 0.5;
  const lines = new Map([...shown.layers].map((layer) => [layer, []]));
  const touched = new Set();
  const weights = [...weightsShown()];
  for (const { layer, head, query, key, weight } of weights) {
    const shift = shiftOf(head);
    lines.get(layer).push(line(head, weight, 0, query + shift, 100, key + shift));
    touched.add(`${layer} queries ${query}`).add(`${layer} keys ${key}`);
  }
  for (const box of document.querySelectorAll(".figure svg")) {
    const layer = Number(box.dataset.layer);
    box.replaceChildren(...lines.get(layer));
    for (const option of box.parentElement.querySelectorAll("li")) {
      const position = positionOf(option);
      option.classList.toggle("active", isSame(position, active()));
      option.classList.toggle("faint", !touched.has(`${layer} ${position.side} ${position.place}`));
      option.setAttribute("aria-selected", isSame(position, marked.chosen));
    }
  }
  describe(weights);
  drawTable();
}

// ---- text and table

function describe(weights) {
  const position = active();
  if (!position) {
    byId("status").replaceChildren("No piece is chosen: all lines are shown.");
    return;
  }
  const strongest = weights.sort((one, other) => other.weight - one.weight);
  const verb = position.side === "queries" ? " attends to " : " is attended to by ";
  const text = [quoted(piecesOf(position.side)[position.place]), verb];
  for (const [number, found] of strongest.slice(0, MOST_NAMED).entries()) {
    const other = position.side === "queries" ? found.key : found.query;
    text.push(number ? ", " : "", quoted(piecesOf(OPPOSITE[position.side])[other]));
    text.push(` ${decimal(found.weight)} (${nameOf(found.layer, found.head)})`);
  }
  if (!strongest.length) text.push("no piece in the layers and heads shown");
  text.push(strongest.length > MOST_NAMED ? ", …" : ".");
  byId("status").replaceChildren(...text);
}

const nameOf = (layer, head) =>
  shown.layers.size > 1
    ? `layer ${data.layers[layer]}, head ${data.heads[head]}`
    : `head ${data.heads[head]}`;

function drawTable() {
  if (!byId("table").open) return;
  const position = active();
  const columns = ascending(shown.layers).flatMap((layer) =>
    ascending(shown.heads).map((head) => [layer, head]));
  const side = position ? OPPOSITE[position.side] : "queries";
  const cell = position ? weightIn(position) : strongestIn;
  const caption = element("caption", {}, `${shown.kind.title}: `);
  if (!position) caption.append("the piece to which each piece attends most, and its weight");
  else {
    caption.append(position.side === "queries" ? "from " : "to ");
    caption.append(quoted(piecesOf(position.side)[position.place]));
  }
  const heading = element("th", { scope: "col" }, data.headings[shown.kind[side]]);
  const head = element("tr", {}, heading);
  for (const [layer, number] of columns) {
    head.append(element("th", { scope: "col" }, nameOf(layer, number)));
  }
  const body = element("tbody", {});
  for (const [place, piece] of piecesOf(side).entries()) {
    const row = element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, piece)));
    for (const [layer, number] of columns) {
      row.append(element("td", {}, ...cell(shown.kind.weights[layer][number], place)));
    }
    body.append(row);
  }
  const table = element("table", {}, caption, element("thead", {}, head), body);
  byId("table").lastElementChild.replaceChildren(table);
}

const weightIn = ({ side, place }) => (weights, other) =>
  [decimal(side === "queries" ? weights[place][other] : weights[other][place])];

function strongestIn(weights, query) {
  const most = Math.max(...weights[query]);
  return [quoted(piecesOf("keys")[weights[query].indexOf(most)]), ` ${decimal(most)}`];
}

// ---- pointer and keyboard

const positionOf = (option) => ({ side: option.dataset.side, place: Number(option.dataset.place) });
const optionAt = (event) => event.target.closest?.("[role=option]") ?? null;

function mark(name, position) {
  const before = active();
  const isChange = !isSame(marked[name], position);
  marked[name] = position;
  if (isChange && (name === "chosen" || !isSame(before, active()))) drawLines();
}

function focusOn(option) {
  for (const other of option.parentElement.children) other.tabIndex = other === option ? 0 : -1;
  option.focus();
}

function onKey(event) {
  const option = optionAt(event);
  if (!option || event.ctrlKey || event.altKey || event.metaKey) return;
  const { side, place } = positionOf(option);
  const list = option.parentElement;
  const opposite = list.parentElement.querySelector(`ul.${OPPOSITE[side]}`).children;
  const moves = {
    ArrowUp: list.children[Math.max(place - 1, 0)],
    ArrowDown: list.children[Math.min(place + 1, list.children.length - 1)],
    Home: list.firstElementChild,
    End: list.lastElementChild,
    [side === "queries" ? "ArrowRight" : "ArrowLeft"]:
      opposite[Math.min(place, opposite.length - 1)],
  };
  if (event.key in moves) focusOn(moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") toggle(option);
  else return;
  event.preventDefault();
}

function toggle(option) {
  const position = positionOf(option);
  mark("chosen", isSame(position, marked.chosen) ? null : position);
}

function clear() {
  Object.assign(marked, { hovered: null, focused: null, chosen: null });
  drawLines();
}

const figures = byId("figures");
const markedBy = (name) => (event) => {
  const option = optionAt(event);
  mark(name, option && positionOf(option));
};
figures.addEventListener("mouseover", markedBy("hovered"));
figures.addEventListener("mouseleave", () => mark("hovered", null));
figures.addEventListener("focusin", markedBy("focused"));
figures.addEventListener("focusout", (event) => {
  // From piece to piece, focusin follows at once.
  if (!event.relatedTarget?.closest("[role=option]")) mark("focused", null);
});
figures.addEventListener("click", (event) => {
  const option = optionAt(event);
  if (!option) return;
  toggle(option);
  if (!marked.chosen) option.blur(); // a focused piece would stay active
});
figures.addEventListener("keydown", onKey);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") clear();
});
byId("table").addEventListener("toggle", drawTable);
byId("choices").addEventListener("submit", (event) => event.preventDefault());

for (const kind of data.kinds) {
  choice("radio", "kinds", kind.title, kind === shown.kind, () => {
    Object.assign(marked, { hovered: null, focused: null, chosen: null });
    shown.kind = kind;
    drawFigures();
  });
}
choicesOf("layers", data.layers, drawFigures);
choicesOf("heads", data.heads, drawLines, swatch);
drawFigures();
