"use strict";
// Translates while one types, sentence by sentence: a sentence that has not changed is not sent
// again. Text gets into the page only as text nodes and attributes, never as HTML.

const PAUSE = 300; // milliseconds without a key until the text is translated
const MOST_ALTERNATIVES = 5;
const MOST_KEPT = 2000; // sentences
const CERTAIN = 80; // % of a detected language, as the service has it
// The least probabilities of a piece, in the geometric mean, of the levels of confidence.
const LEVELS = [
  [0.6, "high"],
  [0.4, "medium"],
  [0, "low"],
];
const UNSPACED = // scripts that write no spaces between words
  /[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}]/u;
const MARK = /^<(?!unk>|0x)[^<>]*>$/; // a piece such as </s>
const DATA = /<script type="application\/json" id="data">(.*?)<\/script>/s; // of a page of attention
const EXAMPLES = {
  ar: ["طفلان يلعبان في الحديقة.", "أين أقرب محطة؟"],
  cs: ["Dvě děti si hrají na zahradě.", "Kde je nejbližší nádraží?"],
  da: ["To børn leger i haven.", "Hvor er den nærmeste station?"],
  de: ["Zwei Kinder spielen im Garten.", "Wo ist der nächste Bahnhof?"],
  el: ["Δύο παιδιά παίζουν στον κήπο.", "Πού είναι ο πλησιέστερος σταθμός;"],
  en: ["Two children are playing in the garden.", "Where is the nearest station?"],
  es: ["Dos niños juegan en el jardín.", "¿Dónde está la estación más cercana?"],
  fa: ["دو کودک در باغ بازی می‌کنند.", "نزدیک‌ترین ایستگاه کجاست؟"],
  fi: ["Kaksi lasta leikkii puutarhassa.", "Missä on lähin asema?"],
  fr: ["Deux enfants jouent dans le jardin.", "Où est la gare la plus proche ?"],
  he: ["שני ילדים משחקים בגינה.", "איפה התחנה הקרובה?"],
  hi: ["दो बच्चे बगीचे में खेल रहे हैं।", "सबसे नज़दीकी स्टेशन कहाँ है?"],
  hu: ["Két gyerek játszik a kertben.", "Hol van a legközelebbi állomás?"],
  id: ["Dua anak bermain di taman.", "Di mana stasiun terdekat?"],
  it: ["Due bambini giocano in giardino.", "Dov'è la stazione più vicina?"],
  ja: ["二人の子どもが庭で遊んでいます。", "一番近い駅はどこですか。"],
  ko: ["두 아이가 정원에서 놀고 있습니다.", "가장 가까운 역이 어디입니까?"],
  nl: ["Twee kinderen spelen in de tuin.", "Waar is het dichtstbijzijnde station?"],
  no: ["To barn leker i hagen.", "Hvor er nærmeste stasjon?"],
  pl: ["Dwoje dzieci bawi się w ogrodzie.", "Gdzie jest najbliższa stacja?"],
  pt: ["Duas crianças brincam no jardim.", "Onde fica a estação mais próxima?"],
  ro: ["Doi copii se joacă în grădină.", "Unde este cea mai apropiată gară?"],
  ru: ["Двое детей играют в саду.", "Где ближайшая станция?"],
  sv: ["Två barn leker i trädgården.", "Var ligger närmaste station?"],
  th: ["เด็กสองคนกำลังเล่นอยู่ในสวน", "สถานีที่ใกล้ที่สุดอยู่ที่ไหน"],
  tr: ["İki çocuk bahçede oynuyor.", "En yakın istasyon nerede?"],
  uk: ["Двоє дітей граються в саду.", "Де найближча станція?"],
  vi: ["Hai đứa trẻ đang chơi trong vườn.", "Nhà ga gần nhất ở đâu?"],
  zh: ["两个孩子在花园里玩。", "最近的车站在哪里？"],
};
const DETECT = "auto";
const byId = (id) => document.getElementById(id);
const [source, target, status] = ["source", "target", "status"].map(byId);
const frame = document.querySelector("iframe");
const languageNames = new Intl.DisplayNames(["en"], { type: "language" });

let models = [];
let mostCharacters = Infinity; // that the service takes
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

function say(message, isError = false, line = status) {
  line.textContent = message;
  line.classList.toggle("error", isError);
}

// ---- requests

const headers = () => {
  const key = sessionStorage.getItem("key");
  return key ? { Authorization: `Bearer ${key}` } : {};
};

async function answerTo(path, body, signal) {
  const request = { headers: headers(), signal };
  if (body instanceof FormData) Object.assign(request, { method: "POST", body });
  else if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  const answer = await fetch(path, request);
  if (answer.ok) return answer;
  const record = await answer.json().catch(() => ({}));
  if (answer.status === 401 || answer.status === 403) byId("key-form").hidden = false;
  throw new Error(record.error ?? `The server answered with status ${answer.status}.`);
}

const ask = async (...request) => (await answerTo(...request)).json();

function report(error, line = status) {
  if (error.name === "AbortError") return; // a newer request has taken its place
  const message = error instanceof TypeError ? "The server cannot be reached." : error.message;
  say(message, true, line);
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

// Of a pair of languages that two models translate.
const through = (model) => (model?.through ? ` through ${languageName(model.through)}` : "");
const names = (codes) => codes.map((code) => [code, languageName(code)]);
const unique = (values) => [...new Set(values)];

// Pairs of languages that no model has alone: the service then chooses the models.
function withOtherPairs(models, languages) {
  const pairs = new Set(models.map((model) => `${model.source} ${model.target}`));
  const isThere = (source, target) => pairs.has(`${source} ${target}`);
  const others = languages.flatMap(({ code, targets }) =>
    targets
      .filter((target) => target !== code && !isThere(code, target))
      .map((target) => ({ source: code, target, beam_size: 1 })),
  );
  return [...models, ...others];
}

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
  showExamples(from === DETECT ? models[0].source : from);
}

function showExamples(language) {
  const examples = (EXAMPLES[language.split("-")[0]] ?? []).map((text) => {
    const button = element("button", { type: "button", lang: language, dir: "auto" }, text);
    button.addEventListener("click", () => setText(text));
    return button;
  });
  byId("examples").hidden = !examples.length;
  byId("examples").replaceChildren("Examples: ", ...examples);
}

async function modelFor(text, signal) {
  const [from, to] = [chosenSource(), byId("target-language").value];
  if (from !== DETECT)
    return fitting(from, to).find((model) => model.name === byId("model").value);
  const detected = await ask("detect", { q: text }, signal);
  const [found] = detected;
  // A text like "OK" may be in any language: it is in the first that has a model.
  const likely = found?.confidence < CERTAIN ? detected : [found];
  const possible = likely.flatMap((each) => fitting(each?.language, to));
  // What is not certain needs no second model.
  const model = possible.find((each) => !each.through) ?? possible[0];
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
  setText(target.inert ? source.value : target.textContent);
}

function setText(text) {
  source.value = text;
  forgetPlaces();
  translate();
  source.focus();
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
  alignments: Boolean(model.name) && !model.parses,
  token_scores: true,
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
    target.classList.add("old"); // until the new translation is there
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
    else say(`Translated${detected}${through(model)}.`);
  } catch (error) {
    if (error.name !== "AbortError") outdate();
    report(error);
  } finally {
    if (!signal.aborted) target.classList.remove("old");
  }
}

// What is shown translates another text than the one that is there, so nothing is done with it.
function outdate() {
  closeSentence(false);
  target.inert = true;
  byId("copy").disabled = true;
  byId("legend").hidden = true;
}

const later = () => {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
};

// Returns the level of the mean probability of the pieces, and that in %; null: it is not known.
function confidence(scores) {
  if (!scores?.length) return null;
  const mean = Math.exp(scores.reduce((sum, score) => sum + score, 0) / scores.length);
  const [, level] = LEVELS.find(([least]) => mean >= least);
  return { level, percent: Math.round(100 * mean) };
}

function showConfidence(span, scores) {
  const found = confidence(scores);
  for (const [, level] of LEVELS) span.classList.toggle(level, level === found?.level);
  const step = shown.model?.through ? `, translating from ${languageName(shown.model.through)}` : "";
  if (found) span.title = `Confidence ${found.level}: ${found.percent} %${step}`;
  else span.removeAttribute("title");
}

function show(next) {
  closeSentence(false);
  shown = next;
  target.inert = false;
  const { sentences, gaps, target_gaps = gaps, translations, model } = shown;
  const attributes = { role: "button", tabindex: "0", "aria-expanded": "false" };
  const spans = sentences.map((sentence, place) => {
    const { text, error, token_scores } = translations[place];
    const span = element("span", { ...attributes, class: "sentence" }, error ? sentence : text);
    if (error) {
      span.classList.add("failed");
      span.title = error;
    } else showConfidence(span, token_scores);
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
  for (const [side, parts, around] of sides)
    side.replaceChildren(...around.flatMap((gap, place) => [gap, parts[place] ?? ""]));
  byId("mirror").append("\n"); // a text area keeps room for a line after the last line end
  target.lang = model?.target ?? "";
  byId("copy").disabled = !sentences.length || !navigator.clipboard;
  byId("legend").hidden = !translations.some(({ token_scores }) => token_scores?.length);
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
  showCount();
}

function showCount() {
  const count = [...source.value].length; // as the service counts them
  const most = mostCharacters < Infinity ? ` of at most ${mostCharacters.toLocaleString("en")}` : "";
  const unit = count === 1 && !most ? "character" : "characters";
  say(`${count.toLocaleString("en")}${most} ${unit}`, count > mostCharacters, byId("count"));
  byId("clear").disabled = !count;
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
      showConfidence(spanOf(place), alternative.token_scores);
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

async function showWords(place, alternative) {
  showForm(place, alternative);
  const source = shown.sentences[place];
  const split = (text) => text.split(/\s+/).filter(Boolean);
  const isUnspaced = UNSPACED.test(source) || UNSPACED.test(alternative.text);
  if (!isUnspaced || !alternative.alignment?.length) {
    drawWords([source, alternative.text].map(split), alternative.alignment ?? []);
    return;
  }
  drawWords([[], []], []); // until the pieces are there
  if (shown.model.through) return; // those of two models are not linked
  try {
    const { words, links } = await linkedPieces(opener.signal);
    drawWords(words, links);
  } catch (error) {
    report(error);
  }
}

// Returns the words of both sides, and links each of the target to the one it attends to most.
async function linkedPieces(signal) {
  const form = [...new FormData(byId("attention"))];
  const fields = Object.fromEntries(form.filter(([name]) => name !== "api_key"));
  const answer = await answerTo("v1/attention", fields, signal);
  const [, data] = DATA.exec(await answer.text());
  const { pieces, kinds, aligning_layer } = JSON.parse(data);
  const heads = kinds.find((kind) => kind.queries !== kind.keys).weights[aligning_layer];
  const sides = [wordsOf(pieces.source), wordsOf(pieces.target_output)];
  const weight = (query, key) => heads.reduce((sum, head) => sum + head[query][key], 0);
  const total = (queries, keys) =>
    queries.flatMap((query) => keys.map((key) => weight(query, key))).reduce((a, b) => a + b);
  const links = (sides[0].length ? sides[1] : []).map(({ places }, number) => {
    const weights = sides[0].map((each) => total(places, each.places));
    return [weights.indexOf(Math.max(...weights)), number];
  });
  return { words: sides.map((side) => side.map(({ text }) => text)), links };
}

// A word is a piece in text without spaces; elsewhere it begins where a piece has a space.
function wordsOf(pieces) {
  const words = [];
  const isApart = UNSPACED.test(pieces.join("")) || !pieces.some((piece) => piece.startsWith("▁"));
  for (const [place, piece] of pieces.entries()) {
    const text = piece.replaceAll("▁", "");
    if (MARK.test(text)) continue;
    if (isApart || piece.startsWith("▁") || !words.length) words.push({ text: "", places: [] });
    words.at(-1).text += text;
    words.at(-1).places.push(place);
  }
  return words.filter(({ text }) => text.trim());
}

function drawWords(texts, links) {
  const words = texts.map((side) => side.map((word) => element("span", { tabindex: "-1" }, word)));
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
}

function showForm(place, alternative) {
  const form = byId("attention");
  form.elements.text.value = shown.sentences[place];
  form.elements.translation.value = alternative.text;
  form.elements.model.value = shown.model.name ?? "";
  form.elements.source.value = shown.model.source;
  form.elements.target.value = shown.model.target;
  form.elements.api_key.value = sessionStorage.getItem("key") ?? "";
  form.hidden = !shown.model.name || Boolean(shown.model.through); // attention is that of one model
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
  const line = byId("document-status");
  const body = new FormData();
  body.append("source", chosenSource());
  body.append("target", byId("target-language").value);
  body.append("file", file);
  say(`Translating ${file.name} …`, false, line);
  try {
    const { translatedFileUrl, failedSegments } = await ask("translate_file", body);
    const name = translatedFileUrl.split("/").pop();
    const link = element("a", { href: `download_file/${name}`, download: file.name }, file.name);
    say("Translated: ", false, line);
    line.append(link);
    if (failedSegments.length) {
      const [{ text, error }] = failedSegments;
      line.append(`, but for ${failedSegments.length} texts, such as “${text}”: ${error}`);
    }
    link.focus();
  } catch (error) {
    report(error, line);
  }
}

// ---- events

async function start() {
  try {
    const [found, languages, settings] = await Promise.all(
      ["v1/models", "languages", "frontend/settings"].map((path) => ask(path)),
    );
    models = withOtherPairs(found.models, languages);
    mostCharacters = settings.charLimit;
    byId("file").accept = settings.supportedFilesFormat.join();
    const sources = names(unique(models.map((model) => model.source)));
    const detected = sources.length > 1 ? [[DETECT, "Detect language"]] : [];
    fill(byId("source-language"), [...sources, ...detected]);
    showChoices();
    showCount();
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
byId("clear").addEventListener("click", () => setText(""));
byId("file").addEventListener("change", async ({ target: input }) => {
  if (!input.files.length) return;
  await translateDocument(input.files[0]);
  input.value = ""; // the same file may be chosen again
});
const hasFile = (event) => event.dataTransfer?.types.includes("Files");
const drag = (isOver) => document.body.classList.toggle("dragging", isOver);
document.addEventListener("dragover", (event) => {
  if (!hasFile(event)) return;
  event.preventDefault(); // else the browser would open it
  drag(true);
});
document.addEventListener("dragleave", ({ relatedTarget }) => drag(relatedTarget !== null));
document.addEventListener("drop", (event) => {
  drag(false);
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
