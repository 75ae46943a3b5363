"""A model of several languages: corpora, tags and lines by their pair of languages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.commands import preprocess, rescore, train, translate
from nmt_cli.commands.checking.first_lines import on_languages
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.recipe.model_settings import (
    LanguagePair,
    as_json,
    languages_of,
    read_settings,
    settings_of,
)
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.translating.encoding.language_tags import for_pair
from nmt_cli.translating.rescorer import Rescorer
from nmt_cli.translating.translator import Translator
from tests.commands.conftest import FP32
from tests.conftest import RECIPE, write_pairs
from tests.plain_sentences import sentences

TRAIN = "{source: ./train.en, target: ./train.de}"
OLD = Path(__file__).parents[1] / "formats/format_2/whitespace/run/average"
PAIRS = "{source: train.en, target: train.de, tag: <2gl>, languages: [gl, en]}, "
PAIRS += "{source: train.en, target: train.de, tag: <2pt>, languages: [pt, en]}"
TAGS = ("<2gl>", "<2pt>")
LISTED = "<2gl> (gl to en) or <2pt> (pt to en)"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model whose sources are in two languages, with a tag for each."""
    folder = tmp_path_factory.mktemp("pairs")
    for seed, (name, count) in enumerate({"train": 150, "validation": 5}.items()):
        write_pairs(folder, name, count, seed)
    recipe = RECIPE.format(folder=".").replace(TRAIN, PAIRS)
    (folder / "toy.yaml").write_text(recipe)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        preprocess.run(recipe="toy.yaml")
        overrides = ["training.max_steps=6", "validation.bleu=off"]
        train.run("toy.yaml", overrides=overrides, threads=1, **FP32)
    return folder / "runs/toy"


@pytest.fixture(scope="module")
def line(model):
    """A line that the tags give different translations."""
    lines = (model.parents[1] / "train.en").read_text().splitlines()
    pairs = zip(
        *(translated(model, *(f"{tag} {each}" for each in lines)) for tag in TAGS), strict=True
    )
    return next(line for line, (one, two) in zip(lines, pairs, strict=True) if one != two)


def translator(model, **options):
    return Translator.load(model, device="cpu", precision="fp32", **options)


def translated(model, *lines, **options):
    return [found.error or found.text for found in translator(model, **options).translate(lines)]


def test_the_pairs_are_kept_with_the_model(model, tmp_path):
    (checkpoint, *_) = (model / "checkpoints").iterdir()
    settings = read_settings(checkpoint)
    assert settings.pairs == (LanguagePair("<2gl>", "gl", "en"), LanguagePair("<2pt>", "pt", "en"))
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["pairs"][0] == {"tag": "<2gl>", "source": "gl", "target": "en"}
    for wrong in ([{"tag": "<2gl>", "source": 1, "target": "en"}], [{"tag": "<2gl>"}], ["<2gl>"]):
        (tmp_path / "config.json").write_text(json.dumps({**config, "pairs": wrong}))
        with pytest.raises(DamagedError):
            read_settings(tmp_path)
    del config["pairs"]  # as earlier versions wrote it
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_settings(tmp_path) == settings._replace(pairs=())
    assert "pairs" not in json.loads(as_json(read_settings(tmp_path)))


def test_a_language_sets_the_tag(model, line):
    by_hand = translated(model, f"<2gl> {line}", f"<2pt> {line}")
    assert by_hand[0] != by_hand[1]
    for options in ({"tag": "<2gl>"}, {"source_language": "gl"}, {"source_language": "gl-ES"}):
        assert translated(model, line, **options) == by_hand[:1]
    assert translated(model, line, source_language="pt", target_language="en") == by_hand[1:]
    # A line that begins with a tag has no other.
    assert translated(model, f"<2pt> {line}", "", source_language="gl") == [by_hand[1], ""]


def test_a_line_without_a_tag_is_refused(model, line):
    missing, blank = translated(model, line, " ")
    assert missing.startswith("it has no tag, but all training text of this model had one; ")
    assert missing.endswith(f"give --source-language gl or pt, or --tag with {LISTED}")
    assert blank == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tag": "2gl"}, f"--tag: this model has no tag '2gl'; give {LISTED}."),
        ({"tag": "ba"}, f"--tag: this model has no tag 'ba'; give {LISTED}."),
        (
            {"source_language": "de"},
            f"no pair of this model fits --source-language de; give {LISTED}.",
        ),
        (
            {"target_language": "en"},
            "several pairs of this model fit --target-language en: <2gl> (gl to en) and "
            "<2pt> (pt to en); add --source-language.",
        ),
        (
            {"tag": "<2gl>", "source_language": "pt"},
            f"no pair of this model fits --tag <2gl> and --source-language pt; give {LISTED}.",
        ),
    ],
)
def test_what_is_no_pair_is_refused_with_the_list(model, options, reason):
    for load in (Translator.load, Rescorer.load):
        with pytest.raises(UserError) as error:
            load(model, device="cpu", precision="fp32", **options)
        assert str(error.value) == reason


def test_the_nearest_pair_is_meant(model):
    rows: list[tuple[str | None, str, str]] = [("<br>", "pt-BR", "en"), ("<pt>", "pt-PT", "en")]
    rows += [("<bt>", "gl", "en"), (None, "gl", "en")]
    rows += [("<en>", "es", "en"), ("<en>", "ca", "en"), ("<es>", "ca", "es")]
    (checkpoint, *_) = (model / "checkpoints").iterdir()
    settings = read_settings(checkpoint)._replace(pairs=tuple(LanguagePair(*row) for row in rows))

    def found(*asked):
        of_pair, tag = for_pair(settings, *asked)
        return tag, *languages_of(of_pair.text)

    assert found(None, "pt-PT", None) == ("<pt>", "pt-PT", "en")
    assert found(None, "gl", "en") == (None, "gl", "en")  # rather the one without a tag
    assert found("<bt>", None, None) == ("<bt>", "gl", "en")
    assert found("<en>", None, None) == ("<en>", settings.text.source_language, "en")
    assert found(None, "ca", "es") == ("<es>", "ca", "es")
    assert found(None, None, None) == (None, *languages_of(settings.text))
    for asked, option in (("ca", None), "--target-language"), (("pt", "en"), "--tag"):
        with pytest.raises(
            UserError, match=f"^several pairs of this model fit .*; add {option}\\.$"
        ):
            found(None, *asked)


def test_a_model_of_an_earlier_version_has_no_pairs(tmp_path):
    (tmp_path / "text").write_text("a\n")
    common: dict[str, Any] = {"input_path": tmp_path / "text", "threads": 1, **FP32}
    for option, reason in {
        "target_language": "--target-language chooses one of the pairs .* this model names none",
        "source_language": "--source-language has an effect only with --split-sentences",
    }.items():
        with pytest.raises(UserError, match=reason):
            translate.run(OLD, **{**common, option: "de"})
    assert translate.run(OLD, **common) == 0


def test_lines_of_json_have_tags_of_their_own(model, line, tmp_path):
    tags = ["<2gl>", "<2pt>", "2pt", None]
    records = [{"text": line} | ({} if tag is None else {"tag": tag}) for tag in tags]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    common: dict[str, Any] = {
        "input_format": "jsonl",
        "output_format": "jsonl",
        "threads": 1,
        **FP32,
    }
    paths: dict[str, Any] = {
        "input_path": tmp_path / "in.jsonl",
        "output_path": tmp_path / "out.jsonl",
    }
    assert translate.run(model, **paths, **common) == 3
    found = [json.loads(each) for each in paths["output_path"].read_text().splitlines()]
    by_hand = translated(model, f"<2gl> {line}", f"<2pt> {line}")
    assert [each["text"] for each in found] == [*by_hand, "", ""]
    assert found[2]["error"] == f"this model has no tag '2pt'; give {LISTED}"
    assert found[3]["error"].startswith("it has no tag")
    translate.run(model, **paths, **common, force=True, source_language="pt")
    found = [json.loads(each) for each in paths["output_path"].read_text().splitlines()]
    assert [each["text"] for each in found] == [*by_hand, "", by_hand[1]]


def test_rescore_takes_the_tag_as_translate_does(model, line, tmp_path):
    (tmp_path / "source").write_text(f"{line}\n<2pt> {line}\n\n")
    (tmp_path / "target").write_text("x\nx\n\n")
    output = tmp_path / "scores"
    paths = (model, tmp_path / "source", tmp_path / "target")
    options: dict[str, Any] = {
        "output_path": output,
        "output_format": "jsonl",
        "threads": 1,
        **FP32,
    }
    assert rescore.run(*paths, **options) == 3
    first, second, blank = map(json.loads, output.read_text().splitlines())
    assert first["error"].startswith("it has no tag")
    assert [second["error"], blank["error"]] == [None, None]
    given: list[dict[str, Any]] = [{"source_language": "pt"}, {"tag": "<2pt>"}]
    for option in given:
        assert rescore.run(*paths, **{**options, **option, "force": True}) == 0
        found = [json.loads(each)["score"] for each in output.read_text().splitlines()]
        assert found == [pytest.approx(second["score"])] * 2 + [None]


def test_a_document_needs_a_pair(model, line, tmp_path):
    (tmp_path / "a.md").write_text(f"{line}\n")
    given = {"input_path": tmp_path / "a.md", "output_path": tmp_path / "b.md", "threads": 1}
    options: dict[str, Any] = {**given, **FP32}
    with pytest.raises(UserError, match=r"^the document cannot be translated: it has no tag, .*"):
        translate.run(model, **options)
    assert not (tmp_path / "b.md").exists()
    assert translate.run(model, **options, source_language="pt") == 0
    (found,) = translated(model, line, source_language="pt")
    assert (tmp_path / "b.md").read_text().strip() == found


@pytest.mark.parametrize("filters", ["min_language: 0.5", "min_script: 0.5"])
def test_filters_judge_each_corpus_by_its_languages(filters, corpus):
    texts = {code: sentences(code) for code in ("en", "de", "fr")}
    if "script" in filters:
        texts["fr"] = ["\u03bb\u03cc\u03b3\u03bf\u03c2 \u03ba\u03b1\u03b9"] * len(texts["en"])
    for code, lines in texts.items():
        corpus.write(f"data/{code}", lines)
    other, codes = "{source: data/fr, target: data/en", "fr" if "language" in filters else "el"
    own = f"{other}, languages: [{codes}, en]}}"
    train = f"data.train=[{{source: data/en, target: data/de}}, {own}, {other}}}]"
    settings = [train, f"data.filters={{{filters}}}", "tokenizer={type: whitespace}"]
    corpus.prepare(*settings)
    found = corpus.opened(*settings).manifest["train"]
    first, of_own, of_default = (each["pairs_kept"] / each["pairs_read"] for each in found)
    assert min(first, of_own) > 0.8
    assert of_default < 0.2


def test_a_memory_has_the_languages_of_its_corpus(corpus):
    unit = "<tu>{}</tu>".format(
        "".join(
            f'<tuv xml:lang="{code}"><seg>{code} one</seg></tuv>' for code in ("en", "de", "gl")
        )
    )
    Path("data/a.tmx").write_text(f'<tmx version="1.4"><header/><body>{unit}</body></tmx>')
    memory = "{memory: data/a.tmx"
    settings = [f"data.train=[{memory}, languages: [gl, en]}}, {memory}}}]"]
    settings += ["tokenizer={type: whitespace}", "data.filters.remove_duplicates=true"]
    corpus.prepare(*settings)
    prepared = corpus.opened(*settings)
    tokens, _ = prepared.source.gather(np.arange(2))
    assert prepared.tokenizer.decode(tokens.tolist()).split() == ["gl", "one", "en", "one"]


def test_codes_of_a_corpus_are_checked(corpus):
    settings = ["data.train.0.languages=[cz, en]"]
    (warning,) = on_languages(read_recipe("./small.yaml", settings).recipe.data)
    assert warning.startswith("data.train.0.languages: cz is no code of a language; did you mean")


def test_pairs_without_tags_need_none(tmp_path):
    settings = ["data.train=[{source: a, target: b, languages: [gl, en]}, {source: c, target: d}]"]
    Path(tmp_path / "toy.yaml").write_text(RECIPE.format(folder="."))
    recipe = read_recipe(str(tmp_path / "toy.yaml"), settings).recipe
    assert settings_of(recipe, 40).pairs == (
        LanguagePair(None, "gl", "en"),
        LanguagePair(None, "en", "de"),
    )
