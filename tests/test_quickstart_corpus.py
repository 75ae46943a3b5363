"""The quickstart corpus: reproducible, clean, and in correct German."""

import hashlib
import importlib
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parent.parent / "data" / "quickstart"
SIZES = {"train": 30_000, "validation": 1_000, "test": 1_000}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The corpus, generated under another order of sets than the committed hashes."""
    directory = tmp_path_factory.mktemp("corpus")
    command = [sys.executable, str(QUICKSTART / "generate.py"), str(directory)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return directory


@pytest.fixture(scope="module")
def corpus(generated):
    """The lines of the six files by name, such as "train.en"."""
    return {
        f"{part}.{language}": (generated / f"{part}.{language}")
        .read_text(encoding="utf-8")
        .splitlines()
        for part in SIZES
        for language in ("en", "de")
    }


@pytest.fixture(scope="module")
def modules():
    """The grammar's own modules, by name."""
    sys.path.insert(0, str(QUICKSTART))
    try:
        names = ("german", "english", "lexicon", "phrases", "times", "clauses")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(QUICKSTART))


def words(lines):
    return {word for line in lines for word in re.findall(r"[\w'-]+", line)}


def test_same_files_as_committed(generated):
    lines = (QUICKSTART / "sha256sums.txt").read_text(encoding="utf-8").splitlines()
    committed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert len(committed) == 6
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in generated.iterdir()
    }
    assert found == committed


def test_sizes(corpus):
    for part, size in SIZES.items():
        assert len(corpus[f"{part}.en"]) == len(corpus[f"{part}.de"]) == size


@pytest.mark.parametrize("language", ["en", "de"])
def test_no_sentence_occurs_twice(corpus, language):
    lines = [line for part in SIZES for line in corpus[f"{part}.{language}"]]
    assert len(set(lines)) == len(lines)


def test_text_is_clean(corpus):
    for lines in corpus.values():
        for line in lines:
            assert unicodedata.is_normalized("NFC", line)
            assert line[-1] in ".?!"
            assert line[0].isupper()
            assert not re.search(r"  | [,.?]|,[^ ]|[.?].", line), line
            assert line == line.strip()


def test_length_and_vocabulary(corpus):
    lengths = [len(line.split()) for line in corpus["train.en"]]
    assert max(lengths) <= 30
    assert 8 <= sum(lengths) / len(lengths) <= 12
    assert len(words(corpus["train.en"])) > 1_200


def test_words_of_the_test_are_known(corpus):
    for language, share in (("en", 0.99), ("de", 0.85)):
        known = words(corpus[f"train.{language}"])
        lines = corpus[f"test.{language}"]
        assert sum(words([line]) <= known for line in lines) >= share * len(lines)


def test_every_verb_noun_and_adjective_is_learnable(corpus, modules):
    counts = Counter(
        word for line in corpus["train.en"] for word in re.findall(r"[\w'-]+", line.lower())
    )
    lexicon = modules["lexicon"]
    for noun in lexicon.NOUNS:
        forms = {noun.english.split()[-1], noun.english_plural.split()[-1]}
        assert sum(counts[form] for form in forms) >= 20, noun.english
    for adjective in lexicon.ADJECTIVES:
        assert counts[adjective.english] >= 20, adjective.english


# --- German, against what a grammar book says ---------------------------------------------------

# By article and number: nominative, accusative, dative, genitive of masculine, feminine, neuter.
PHRASES = [
    ("THE", "coat", "old", False, "der alte Mantel|den alten Mantel|dem alten Mantel"
     "|des alten Mantels"),
    ("THE", "lamp", "old", False, "die alte Lampe|die alte Lampe|der alten Lampe|der alten Lampe"),
    ("THE", "book", "old", False, "das alte Buch|das alte Buch|dem alten Buch|des alten Buches"),
    ("THE", "book", "old", True, "die alten Bücher|die alten Bücher|den alten Büchern"
     "|der alten Bücher"),
    ("A", "coat", "old", False, "ein alter Mantel|einen alten Mantel|einem alten Mantel"
     "|eines alten Mantels"),
    ("A", "lamp", "old", False, "eine alte Lampe|eine alte Lampe|einer alten Lampe"
     "|einer alten Lampe"),
    ("A", "book", "old", False, "ein altes Buch|ein altes Buch|einem alten Buch"
     "|eines alten Buches"),
    ("A", "book", "old", True, "alte Bücher|alte Bücher|alten Büchern|alter Bücher"),
    ("NO_ARTICLE", "wine", "cold", False, "kalter Wein|kalten Wein|kaltem Wein|kalten Weins"),
    ("NO_ARTICLE", "milk", "cold", False, "kalte Milch|kalte Milch|kalter Milch|kalter Milch"),
    ("NO_ARTICLE", "water", "cold", False, "kaltes Wasser|kaltes Wasser|kaltem Wasser"
     "|kalten Wassers"),
    ("NOT_A", "hat", "new", True, "keine neuen Hüte|keine neuen Hüte|keinen neuen Hüten"
     "|keiner neuen Hüte"),
    ("MANY", "hat", "new", True, "viele neue Hüte|viele neue Hüte|vielen neuen Hüten"
     "|vieler neuer Hüte"),
    ("ALL", "hat", "new", True, "alle neuen Hüte|alle neuen Hüte|allen neuen Hüten"
     "|aller neuen Hüte"),
    ("A_FEW", "car", "expensive", True, "ein paar teure Autos|ein paar teure Autos"
     "|ein paar teuren Autos"),
    ("THIS", "student", "young", False, "dieser junge Student|diesen jungen Studenten"
     "|diesem jungen Studenten"
     "|dieses jungen Studenten"),
    ("THE", "gentleman", "old", False, "der alte Herr|den alten Herrn|dem alten Herrn"
     "|des alten Herrn"),
    ("THE", "gentleman", "old", True, "die alten Herren|die alten Herren|den alten Herren"
     "|der alten Herren"),
    ("THE", "bus", "dark", False, "der dunkle Bus|den dunklen Bus|dem dunklen Bus"
     "|des dunklen Busses"),
    ("THE", "kitchen table", "small", False, "der kleine Küchentisch|den kleinen Küchentisch"
     "|dem kleinen Küchentisch|des kleinen Küchentisches"),
]  # fmt: skip


@pytest.mark.parametrize(("article", "noun", "adjective", "plural", "forms"), PHRASES)
def test_declension(modules, article, noun, adjective, plural, forms):
    lexicon, phrases = modules["lexicon"], modules["phrases"]
    nouns = {entry.english: entry for entry in lexicon.NOUNS + lexicon.COMPOUNDS}
    word = next(entry for entry in lexicon.ADJECTIVES if entry.english == adjective)
    phrase = phrases.noun_phrase(
        nouns[noun], getattr(phrases, article), plural, phrases.attribute(word)
    )
    for case, form in enumerate(forms.split("|")):
        assert phrase.german(case) == form


# Infinitive with zu, ich, du, er, wir, participle.
VERBS = [
    ("auf|stehen !aufgestanden", "aufzustehen", "stehe stehst steht stehen", "aufgestanden"),
    ("ein|kaufen", "einzukaufen", "kaufe kaufst kauft kaufen", "eingekauft"),
    ("arbeiten", "zu arbeiten", "arbeite arbeitest arbeitet arbeiten", "gearbeitet"),
    ("öffnen", "zu öffnen", "öffne öffnest öffnet öffnen", "geöffnet"),
    ("lernen", "zu lernen", "lerne lernst lernt lernen", "gelernt"),
    ("spielen", "zu spielen", "spiele spielst spielt spielen", "gespielt"),
    ("sammeln", "zu sammeln", "sammle sammelst sammelt sammeln", "gesammelt"),
    ("reparieren", "zu reparieren", "repariere reparierst repariert reparieren", "repariert"),
    ("besuchen", "zu besuchen", "besuche besuchst besucht besuchen", "besucht"),
    ("vor|bereiten", "vorzubereiten", "bereite bereitest bereitet bereiten", "vorbereitet"),
    ("ein|laden einlädt eingeladen", "einzuladen", "lade lädst lädt laden", "eingeladen"),
    ("lesen liest gelesen", "zu lesen", "lese liest liest lesen", "gelesen"),
    ("nehmen nimmt genommen", "zu nehmen", "nehme nimmst nimmt nehmen", "genommen"),
    ("tanzen", "zu tanzen", "tanze tanzt tanzt tanzen", "getanzt"),
    ("Rad_|fahren Rad_fährt !Rad_gefahren", "Rad zu fahren", "fahre fährst fährt fahren",
     "Rad gefahren"),
    ("raten rät geraten", "zu raten", "rate rätst rät raten", "geraten"),
    ("sein", "zu sein", "bin bist ist sind", ""),
    ("wissen weiß gewusst", "zu wissen", "weiß weißt weiß wissen", "gewusst"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "infinitive", "present", "participle"), VERBS)
def test_conjugation(modules, entry, infinitive, present, participle):
    verb = modules["lexicon"].german_verb(entry)
    assert verb.zu_infinitive() == infinitive
    assert " ".join(verb.present(person) for person in ("ich", "du", "er", "wir")) == present
    if participle:
        assert verb.participle == participle


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (76, "seventy-six", "sechsundsiebzig"),
        (105, "one hundred and five", "einhundertfünf"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
        (1_012, "one thousand and twelve", "eintausendzwölf"),
        (9_340, "nine thousand three hundred and forty", "neuntausenddreihundertvierzig"),
    ],
)
def test_numbers(modules, value, english, german):
    assert modules["english"].number(value) == english
    assert modules["german"].number(value) == german


@pytest.mark.parametrize(
    ("kind", "hour", "english", "german"),
    [
        (0, 1, "at one o'clock", "um ein Uhr"),
        (0, 8, "at eight o'clock", "um acht Uhr"),
        (1, 7, "at half past seven", "um halb acht"),
        (1, 12, "at half past twelve", "um halb eins"),
        (2, 3, "at a quarter past three", "um Viertel nach drei"),
        (3, 8, "at a quarter to nine", "um Viertel vor neun"),
        (6, 4, "at ten past four", "um zehn nach vier"),
        (9, 12, "at twenty to one", "um zwanzig vor eins"),
    ],
)
def test_clock(modules, kind, hour, english, german):
    assert modules["times"].clock(kind, hour) == (english, german)


def test_dates(modules):
    date = modules["times"].date
    assert date(3, ("May", "Mai")) == ("on the third of May", "am dritten Mai")
    assert date(7, ("May", "Mai")) == ("on the seventh of May", "am siebten Mai")
    assert date(28, ("May", "Mai")) == ("on the twenty-eighth of May", "am achtundzwanzigsten Mai")


@pytest.mark.parametrize(
    ("english", "degrees"),
    [
        ("old", "älter ältest"),
        ("big", "größer größt"),
        ("good", "besser best"),
        ("expensive", "teurer teuerst"),
        ("dark", "dunkler dunkelst"),
        ("exciting", "spannender spannendst"),
        ("hot", "heißer heißest"),
        ("practical", "praktischer praktischst"),
    ],
)
def test_comparison(modules, english, degrees):
    word = next(word for word in modules["lexicon"].ADJECTIVES if word.english == english)
    assert f"{word.german.comparative} {word.german.superlative}" == degrees


# One clause in the word orders of main clause, question, subordinate clause and infinitive.
ORDERS = [
    ("present", "ich stehe heute auf", "stehe ich heute auf", "weil ich heute aufstehe"),
    ("past", "ich bin heute aufgestanden", "bin ich heute aufgestanden",
     "weil ich heute aufgestanden bin"),
    ("future", "ich werde heute aufstehen", "werde ich heute aufstehen",
     "weil ich heute aufstehen werde"),
]  # fmt: skip


@pytest.mark.parametrize(("tense", "statement", "question", "subordinate"), ORDERS)
def test_word_order(modules, tense, statement, question, subordinate):
    clauses, lexicon, phrases = (modules[name] for name in ("clauses", "lexicon", "phrases"))
    verb = lexicon.Verb(
        lexicon.english_verb("get~up got got"), lexicon.german_verb("auf|stehen !aufgestanden")
    )
    today = clauses.Piece("today", "heute", clauses.Role.TIME)
    clause = clauses.Clause(phrases.PRONOUNS["I"], verb, (today,), tense)
    assert clauses.german_main(clause) == statement
    assert clauses.german_main(clause, "") == question
    assert clauses.german_subordinate(clause, "weil") == subordinate
    assert clauses.german_infinitive(clause) == "heute aufzustehen"


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("in the garden", "im Garten"),
        ("to the station", "zum Bahnhof"),
        ("to the school", "zur Schule"),
        ("by the teacher", "vom Lehrer"),
        ("into the museum", "ins Museum"),
    ],
)
def test_prepositions_join_their_article(modules, english, german):
    lexicon, phrases, cases = modules["lexicon"], modules["phrases"], modules["german"]
    preposition, _, noun = english.split()
    words_ = {"in": ("in", cases.DATIVE), "to": ("zu", cases.DATIVE), "by": ("von", cases.DATIVE),
              "into": ("in", cases.ACCUSATIVE)}[preposition]  # fmt: skip
    phrase = phrases.noun_phrase(lexicon.BY_ENGLISH[noun], phrases.THE)
    found = phrases.prepositional((preposition, words_[0]), words_[1], phrase)
    assert found == (english, german)
