"""What a translation of a language model must fulfil, in several languages."""

import pytest

from nmt_cli.commands.distilling.language_model import answers
from nmt_cli.commands.distilling.language_model.prompts import Prompt
from nmt_cli.recipe.reading.reader import read_recipe

RECIPE = """\
description: a student of a language model
data:
  source_language: %s
  target_language: %s
  train: [{source: train.en, target: train.de}]
  validation: {source: test.en, target: test.de}
tokenizer: {vocabulary_size: 300, user_defined_symbols: [<sep>]}
distillation: {teacher: {model: toy}}
"""


def checks(folder, source="en", target="de", *overrides):
    path = folder / "student.yaml"
    path.write_text(RECIPE % (source, target))
    recipe = read_recipe(str(path), overrides).recipe
    assert recipe.distillation.teacher is not None
    return answers.Checks(recipe, Prompt(recipe.distillation.teacher, (source, target)))


ENGLISH = "The committee met on 12 May 2023 and discussed the plan for two hours."
RIGHT = [
    ("en", "de", ENGLISH, "Der Ausschuss tagte am 12. Mai 2023 und beriet zwei Stunden den Plan."),
    ("en", "de", "OK", "In Ordnung"),
    ("en", "de", "Yes.", "Ja, das ist richtig."),
    ("en", "de", "It costs 1,250.50 euros.", "Es kostet 1.250,50 Euro."),
    ("en", "de", "Open {file} on <b>page %d</b>.", "Öffnen Sie {file} auf <b>Seite %d</b>."),
    ("en", "de", "See HTTP://Example.org/a?b=1.", "Siehe http://example.org/a?b=1."),
    ("en", "de", "One.<sep> Two.", "Eins.<sep> Zwei."),
    ("en", "de", "😀👍🏽", "😀👍🏽"),
    ("en", "de", "12345", "12345"),
    (
        "en",
        "de",
        "Jan Kowalski, Anna Nowak, Piotr Wiśniewski",
        "Jan Kowalski, Anna Nowak, Piotr Wiśniewski",
    ),
    ("de", "en", "Hier ist die Übersetzung des Vertrags.", "This is the contract, translated."),
    (
        "de",
        "en",
        "Es tut mir leid, aber ich kann nicht kommen.",
        "I'm sorry, but I can't come to it.",
    ),
    ("en", "zh", ENGLISH, "委员会于2023年5月12日召开会议，讨论了该计划两个小时。"),
    ("zh", "en", "5月12日的会议。", "The meeting on 12 May."),
    (
        "zh",
        "en",
        "委员会召开会议，讨论了该计划。",
        "The committee met and discussed the plan at length.",
    ),
    (
        "en",
        "ar",
        "The meeting is at 10 in room 25 of the old building.",
        "الاجتماع في الساعة ١٠ في الغرفة ٢٥ من المبنى القديم.",
    ),
    ("en", "th", "The old man reads a book in the garden.", "ชายชราอ่านหนังสืออยู่ในสวน"),
    ("en", "tr", "The old man reads a book in the garden.", "Yaşlı adam bahçede bir kitap okuyor."),
    (
        "en",
        "tlh",
        "The old man reads a book in the garden.",
        "qanwI' loD tlhaq je'laHbe'ghach tIjwI'ghom.",
    ),
]
WRONG = [
    ("de", ENGLISH, ENGLISH, "other language"),
    ("de", ENGLISH, "Le comité s'est réuni le 12 mai 2023 et a discuté du plan.", "other language"),
    ("zh", ENGLISH, "The committee had a meeting on 12 May 2023 about its plan.", "other language"),
    ("de", ENGLISH, "Der Ausschuss tagte am 12. Mai 2024 und beriet den Plan.", "other numbers"),
    (
        "de",
        ENGLISH,
        "Der Ausschuss tagte im Mai und beriet zwei Stunden den Plan.",
        "other numbers",
    ),
    ("de", "On 12 and 13 May", "Am 12. Mai", "other numbers"),
    ("ar", "He is 25 years old and lives here.", "عمره ٢٦ عامًا ويعيش هنا.", "other numbers"),
    ("de", "Open {file} now.", "Öffnen Sie die {Datei} jetzt.", "placeholders"),
    ("de", "Open <b>it</b> now.", "Öffnen Sie es jetzt.", "placeholders"),
    ("de", "It was %s before.", "Es war %d davor.", "placeholders"),
    ("de", "One.<sep> Two.", "Eins. Zwei.", "placeholders"),
    ("de", "Look at https://a.test/x now.", "Sehen Sie https://b.test/x an.", "other URLs"),
    ("de", "Look at a@b.test now.", "Sehen Sie sich das jetzt an.", "other URLs"),
    ("de", "Yes.", "Ja. " * 100, "length"),
    ("de", "Yes.", "{" * 1_000_000, "length"),
    ("de", "The members met, discussed the plan, " * 4, "Ja.", "length"),
    ("de", "Hello there", "Here is the translation: Hallo", "comment"),
    ("de", "Hello there", "Sure! Here's your German translation: Hallo", "comment"),
    ("de", "Hello there", "Translation: Hallo dort", "comment"),
    ("de", "Kill him", "I'm sorry, but I can't assist with that.", "comment"),
    ("de", "Kill him", "I cannot help with that request.", "comment"),
    ("de", "Kill him", "As an AI language model, I do not.", "comment"),
    (
        "de",
        "Hello there, all of you who came",
        "Translate from English to German. Keep placeholders, tags: Hallo",
        "the instruction",
    ),
    (
        "de",
        "Hello there, all of you who came",
        "The lines to translate are in the JSON object below.",
        "the instruction",
    ),
    ("de", "Hello", " \n\u200b\t", "no text"),
    ("de", "Hello", "", "no text"),
    ("de", "Hello", "Hallo \udfff", "half of a surrogate"),
]


@pytest.mark.parametrize(("source", "target", "line", "text"), RIGHT)
def test_right_translations_pass(tmp_path, source, target, line, text):
    assert checks(tmp_path, source, target).checked(line, text) == text


@pytest.mark.parametrize(("target", "line", "text", "reason"), WRONG)
def test_wrong_translations_fail(tmp_path, target, line, text, reason):
    with pytest.raises(answers.WrongAnswerError, match=reason):
        checks(tmp_path, "en", target).checked(line, text)


def test_a_translation_becomes_one_line(tmp_path):
    assert checks(tmp_path).checked("Hi\tyou", " Hallo\r\ndu\u2028da\t ") == "Hallo  du da"


def test_the_filters_of_the_recipe_decide(tmp_path):
    longer = ENGLISH, "Der Ausschuss tagte am 12. Mai 2023 und sprach lange."
    checks(tmp_path).checked(*longer)
    with pytest.raises(answers.WrongAnswerError, match="length"):
        checks(tmp_path, "en", "de", "data.filters.max_characters_ratio=1.1").checked(*longer)
    long = "Yes.", "Ja, ich bin damit sehr einverstanden. " * 4
    checks(tmp_path, "en", "de", "data.filters.max_characters_ratio=99").checked(*long)
    hours = "It is 5 pm.", "Es ist 17 Uhr."
    checks(tmp_path, "en", "de", "data.filters.min_equal_digits=0").checked(*hours)
    with pytest.raises(answers.WrongAnswerError, match="other numbers"):
        checks(tmp_path).checked(*hours)
