"use strict";
// Translates while one types, sentence by sentence: a sentence that has not changed is not sent
// again. Text gets into the page only as text nodes and attributes, never as HTML.

const PAUSE = 300; // milliseconds without a key until the text is translated
const MOST_ALTERNATIVES = 5;
const MOST_KEPT = 2000; // sentences
const CERTAIN = 80; // % of a detected language, as the service has it
const DETECT = "auto";
const byId = (id) => document.getElementById(id);
const [source, target, status] = ["source", "target", "status"].map(byId);
const frame = document.querySelector("iframe");
const languageNames = new Intl.DisplayNames(["en"], { type: "language" });

let models = [];
let shown = { model: null, sentences: [], gaps: [""], translations: [] };
let open = null; // the place of the sentence whose alternatives are shown
let opener = null; // the request for them
let running = null; // the newest request for translations
let timer;
const kept = new Map(); // translations of sentences, by model, terms and text

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function say(message, isError = false) {
  status.textContent = message;
  status.classList.toggle("error", isError);
}

// ---- requests

const headers = () => {
  const key = sessionStorage.getItem("key");
  return key ? { Authorization: `Bearer ${key}` } : {};
};

async function ask(path, body, signal) {
  const request = { headers: headers(), signal };
  if (body instanceof FormData) Object.assign(request, { method: "POST", body });
  else if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  const answer = await fetch(path, request);
  const record = await answer.json().catch(() => ({}));
  if (answer.ok) return record;
  if (answer.status === 401 || answer.status === 403) byId("key-form").hidden = false;
  throw new Error(record.error ?? `The server answered with status ${answer.status}.`);
}

function report(error) {
  if (error.name === "AbortError") return; // a newer request has taken its place
  say(error instanceof TypeError ? "The server cannot be reached." : error.message, true);
}

// ---- languages and models

// A model may have any words as the codes of its languages.
function languageName(code) {
  try {
    return languageNames.of(code);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return code;
  }
}

const names = (codes) => codes.map((code) => [code, languageName(code)]);
const unique = (values) => [...new Set(values)];

function fill(select, choices) {
  const before = select.value;
  select.replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
  if (choices.some(([value]) => value === before)) select.value = before;
}

const chosenSource = () => byId("source-language").value;
const fitting = (from, to) =>
  models.filter((model) => (from === DETECT || model.source === from) && model.target === to);

function showChoices() {
  const from = chosenSource();
  const targets = models.filter((model) => from === DETECT || model.source === from);
  fill(byId("target-language"), names(unique(targets.map((model) => model.target))));
  const choices = fitting(from, byId("target-language").value).map(({ name }) => [name, name]);
  fill(byId("model"), choices);
  byId("model-choice").hidden = from === DETECT || choices.length < 2;
  byId("swap").disabled = !models.some(
    (model) => model.source === byId("target-language").value && model.target === from,
  );
}

async function modelFor(text, signal) {
  const [from, to] = [chosenSource(), byId("target-language").value];
  if (from !== DETECT)
    return fitting(from, to).find((model) => model.name === byId("model").value);
  const detected = await ask("detect", { q: text }, signal);
  const [found] = detected;
  // A text like "OK" may be in any language: it is in the first that has a model.
  const likely = found?.confidence < CERTAIN ? detected : [found];
  const model = likely.flatMap((each) => fitting(each?.language, to))[0];
  if (model) return model;
  const language = found ? languageName(found.language) : "This language";
  throw new Error(`${language} cannot be translated to ${languageName(to)} here.`);
}

function swap() {
  const [from, to] = [chosenSource(), byId("target-language").value];
  byId("source-language").value = to;
  showChoices();
  byId("target-language").value = from;
  showChoices();
  source.value = target.textContent;
  forgetPlaces();
  translate();
}

// ---- terms

// Returns the terms as the server takes them; throws an error that names a wrong line.
function terms() {
  const glossary = {};
  for (const [place, line] of byId("terms").value.split("\n").entries()) {
    if (!line.trim()) continue;
    const [term, ...forms] = line.split(/[=|]/).map((part) => part.trim());
    if (!term || !forms.length || forms.includes(""))
      throw new Error(`Line ${place + 1} of the terms is not “term = translation”.`);
    glossary[term] = forms;
  }
  return glossary;
}

const request = (model, glossary, more) => ({
  model: model.name,
  source: model.source,
  target: model.target,
  alignments: !model.parses,
  ...(Object.keys(glossary).length ? { glossary } : {}),
  ...more,
});

// ---- translating

function keyOf(model, glossary, text) {
  return JSON.stringify([model.name, model.source, model.target, glossary, text]);
}

function keep(key, translation) {
  kept.set(key, translation);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
}

async function translate() {
  clearTimeout(timer);
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const text = source.value;
  try {
    const glossary = terms();
    if (!text.trim()) {
      show({ model: null, sentences: [], gaps: [text], translations: [] });
      say("");
      return;
    }
    target.classList.add("old");
    const model = await modelFor(text, signal);
    const cut = { text, source: model.source, target: model.target };
    const { sentences, gaps, target_gaps } = await ask("v1/sentences", cut, signal);
    const keys = sentences.map((sentence) => keyOf(model, glossary, sentence));
    const found = new Map(keys.map((key) => [key, kept.get(key)]));
    const missing = unique(sentences.filter((_, place) => !found.get(keys[place])));
    if (missing.length) {
      say("Translating …");
      const body = request(model, glossary, { text: missing });
      const { translations } = await ask("v1/translate", body, signal);
      for (const [place, translation] of translations.entries()) {
        const key = keyOf(model, glossary, missing[place]);
        found.set(key, translation);
        if (!translation.error) keep(key, translation); // another attempt may succeed
      }
    }
    const translations = keys.map((key) => found.get(key));
    show({ model, glossary, sentences, gaps, target_gaps, translations });
    const [failed, ...others] = translations.filter((translation) => translation.error);
    const detected = chosenSource() === DETECT ? ` from ${languageName(model.source)}` : "";
    if (others.length) say(`${1 + others.length} sentences were not translated.`, true);
    else if (failed) say(`A sentence was not translated: ${failed.error}.`, true);
    else say(`Translated${detected}.`);
  } catch (error) {
    report(error);
  } finally {
    if (!signal.aborted) target.classList.remove("old");
  }
}

const later = () => {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
};

function show(next) {
  closeSentence(false);
  shown = next;
  const { sentences, gaps, target_gaps = gaps, translations, model } = shown;
  const attributes = { role: "button", tabindex: "0", "aria-expanded": "false" };
  const spans = sentences.map((sentence, place) => {
    const { text, error } = translations[place];
    const span = element("span", { ...attributes, class: "sentence" }, error ? sentence : text);
    if (error) {
      span.classList.add("failed");
      span.title = error;
    }
    for (const [event, isMarked] of [
      ["pointerenter", true],
      ["pointerleave", false],
      ["focus", true],
      ["blur", false],
    ])
      span.addEventListener(event, () => mark(place, isMarked));
    span.addEventListener("click", () => openSentence(place));
    span.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      openSentence(place);
    });
    return span;
  });
  const sides = [
    [target, spans, target_gaps],
    [byId("mirror"), sentences.map((sentence) => element("span", {}, sentence)), gaps],
  ];
  for (const [side, parts, between] of sides)
    side.replaceChildren(...between.flatMap((gap, place) => [gap, parts[place] ?? ""]));
  byId("mirror").append("\n"); // a text area keeps room for a line after the last line end
  target.lang = model?.target ?? "";
  byId("copy").hidden = !sentences.length || !navigator.clipboard;
}

const spanOf = (place) => target.querySelectorAll(".sentence")[place];

// Marks a sentence and its translation, or takes the mark away.
function mark(place, isMarked, name = "marked") {
  for (const span of [spanOf(place), byId("mirror").querySelectorAll("span")[place]])
    span?.classList.toggle(name, isMarked);
}

// The text changes before its sentences are known again: until then, no mark would be in its place.
function forgetPlaces() {
  byId("mirror").replaceChildren(source.value, "\n");
}

// ---- one sentence

async function openSentence(place) {
  if (place === open) {
    closeSentence();
    return;
  }
  closeSentence(false);
  open = place;
  opener = new AbortController();
  const { model, glossary, sentences } = shown;
  spanOf(place).setAttribute("aria-expanded", "true");
  mark(place, true, "opened");
  try {
    const most = Math.min(MOST_ALTERNATIVES, model.beam_size);
    const body = request(model, glossary, { text: sentences[place], n_best: most });
    const answer = await ask("v1/translate", body, opener.signal);
    const [translation] = answer.translations;
    if (translation.error) throw new Error(`It was not translated: ${translation.error}.`);
    showAlternatives(place, [translation, ...translation.alternatives]);
  } catch (error) {
    report(error);
  }
}

function showAlternatives(place, ranked) {
  const current = spanOf(place).textContent;
  const fieldset = byId("alternatives");
  const choices = ranked.map((alternative) => {
    const input = element("input", { type: "radio", name: "alternative" });
    const choose = () => {
      spanOf(place).textContent = alternative.text;
      showWords(place, alternative);
    };
    input.checked = alternative.text === current;
    input.addEventListener("change", choose);
    if (input.checked) showWords(place, alternative);
    const text = element("span", { lang: shown.model.target, dir: "auto" }, alternative.text);
    const score = element("span", { class: "score" }, alternative.score.toFixed(3));
    return element("label", {}, input, text, score);
  });
  fieldset.replaceChildren(fieldset.querySelector("legend"), ...choices);
  if (!fieldset.querySelector("input:checked")) fieldset.querySelector("input").click();
  byId("sentence-heading").textContent = `Sentence ${place + 1}`;
  byId("sentence").hidden = false;
  fieldset.querySelector("input:checked").focus({ preventScroll: true });
  byId("sentence").scrollIntoView({ block: "nearest" });
}

function showWords(place, alternative) {
  const links = alternative.alignment ?? [];
  const split = (text) => text.split(/\s+/).filter(Boolean);
  const words = [split(shown.sentences[place]), split(alternative.text)].map((side) =>
    side.map((word) => element("span", { tabindex: "-1" }, word)),
  );
  for (const [side, spans] of words.entries()) {
    const line = byId(["source-words", "target-words"][side]);
    line.lang = side ? shown.model.target : shown.model.source;
    line.replaceChildren(...spans.flatMap((span) => [span, " "]));
    if (spans.length) spans[0].tabIndex = 0;
    for (const [number, span] of spans.entries()) {
      const linked = links.filter((link) => link[side] === number).map((link) => link[1 - side]);
      const others = linked.map((other) => words[1 - side][other]);
      const highlight = (isMarked) => {
        for (const each of [span, ...others]) each.classList.toggle("marked", isMarked);
      };
      const describe = () => {
        highlight(true);
        const text = others.map((other) => other.textContent).join(" ") || "no word";
        say(`“${span.textContent}” belongs to “${text}”.`);
      };
      span.addEventListener("pointerenter", () => highlight(true));
      span.addEventListener("pointerleave", () => highlight(false));
      span.addEventListener("focus", describe);
      span.addEventListener("blur", () => highlight(false));
      span.addEventListener("keydown", (event) => step(event, spans, number));
    }
  }
  byId("words").hidden = !links.length;
  const form = byId("attention");
  form.elements.text.value = shown.sentences[place];
  form.elements.translation.value = alternative.text;
  form.elements.model.value = shown.model.name;
  form.elements.source.value = shown.model.source;
  form.elements.target.value = shown.model.target;
  form.elements.api_key.value = sessionStorage.getItem("key") ?? "";
  frame.hidden = true;
}

function step(event, spans, number) {
  const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -spans.length, End: spans.length };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const next = Math.min(Math.max(number + moves[event.key], 0), spans.length - 1);
  spans[number].tabIndex = -1;
  spans[next].tabIndex = 0;
  spans[next].focus();
}

function closeSentence(returnsFocus = true) {
  opener?.abort();
  if (open === null) return;
  const span = spanOf(open);
  span?.setAttribute("aria-expanded", "false");
  mark(open, false, "opened");
  open = null;
  byId("sentence").hidden = true;
  if (returnsFocus) span?.focus();
}

// ---- documents

async function translateDocument(file) {
  const body = new FormData();
  body.append("source", chosenSource());
  body.append("target", byId("target-language").value);
  body.append("file", file);
  say(`Translating ${file.name} …`);
  try {
    const { translatedFileUrl, failedSegments } = await ask("translate_file", body);
    const name = translatedFileUrl.split("/").pop();
    const link = element("a", { href: `download_file/${name}`, download: file.name }, file.name);
    say("Translated: ");
    status.append(link);
    if (failedSegments.length) {
      const [{ text, error }] = failedSegments;
      status.append(`, but for ${failedSegments.length} texts, such as “${text}”: ${error}`);
    }
    link.focus();
  } catch (error) {
    report(error);
  }
}

// ---- events

async function start() {
  try {
    ({ models } = await ask("v1/models"));
    const sources = names(unique(models.map((model) => model.source)));
    const detected = sources.length > 1 ? [[DETECT, "Detect language"]] : [];
    fill(byId("source-language"), [...sources, ...detected]);
    showChoices();
    say("");
    if (source.value) translate();
  } catch (error) {
    report(error);
  }
}

source.addEventListener("input", () => {
  forgetPlaces();
  later();
});
source.addEventListener("scroll", () => (byId("mirror").scrollTop = source.scrollTop));
byId("terms").addEventListener("input", later);
for (const id of ["source-language", "target-language", "model"])
  byId(id).addEventListener("change", () => {
    showChoices();
    translate();
  });
byId("swap").addEventListener("click", swap);
byId("file").addEventListener("change", ({ target: { files } }) => {
  if (files.length) translateDocument(files[0]);
});
const hasFile = (event) => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragover", (event) => {
  if (hasFile(event)) event.preventDefault(); // else the browser would open it
});
document.addEventListener("drop", (event) => {
  if (!hasFile(event)) return;
  event.preventDefault();
  translateDocument(event.dataTransfer.files[0]);
});
byId("close").addEventListener("click", () => closeSentence());
byId("attention").addEventListener("submit", () => {
  frame.hidden = false;
});
frame.addEventListener("load", () => {
  const page = frame.contentDocument?.documentElement;
  if (!page) return; // the browser's own page: the server cannot be reached
  const fit = () => (frame.style.height = `${page.offsetHeight + 2}px`); // and its borders
  new ResizeObserver(fit).observe(page);
  fit();
  frame.scrollIntoView({ block: "nearest" });
});
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(target.textContent);
  say("Copied.");
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", byId("key").value);
  byId("key-form").hidden = true;
  start();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && open !== null) closeSentence();
  if (event.key === "Enter" && event.ctrlKey) translate();
});
start();
