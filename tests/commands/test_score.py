import gzip
import io
import json

import pytest
import sacrebleu

from nmt_cli.commands import score
from nmt_cli.files.output_streams import STANDARD_INPUT
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError

LINES = ["The cat sat on the mat.", "A dog barked loudly at night.", "It rains."]
OTHERS = ["The cat lay on the mat.", "A dog barked loudly at us.", "It rained."]


def test_text_has_scores_and_signatures(files, capsys):
    score.run(files("hyp", LINES), [files("ref", OTHERS)])
    bleu, chrf = capsys.readouterr().out.splitlines()
    expected = sacrebleu.corpus_bleu(LINES, [OTHERS]).score
    assert bleu.startswith(f"BLEU {expected:.2f}  ")
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in bleu
    expected = sacrebleu.corpus_chrf(LINES, [OTHERS]).score
    assert chrf.startswith(f"chrF2 {expected:.2f}  nrefs:1|")


CHINESE = ["今天晚上的月亮很圆。", "他们都喜欢看书。"]
CHANGED = ["今天晚上月亮很圆。", "他们都喜欢看画。"]


@pytest.mark.parametrize("named", [None, "char", "13a"])
def test_the_tokenizer_fits_text_without_spaces_unless_one_is_named(files, capsys, named):
    score.run(files("hyp", CHANGED), [files("ref", CHINESE)], tokenize=named)
    expected = sacrebleu.corpus_bleu(CHANGED, [CHINESE], tokenize=named or "zh")
    output, warnings = capsys.readouterr()
    assert output.startswith(f"BLEU {expected.score:.2f}  ")
    assert f"|tok:{named or 'zh'}|" in output
    assert warnings == ""
    assert (expected.score > 40) == (named != "13a")


def test_ter_of_text_without_spaces_gets_a_warning(files, capsys):
    score.run(files("hyp", CHANGED), [files("ref", CHINESE)], ter=True)
    assert "ref has no spaces between words, and TER counts" in capsys.readouterr().err


def test_json_with_several_references(files, capsys):
    references = [files("ref1", OTHERS), files("ref2", LINES)]
    score.run(
        files("hyp", LINES), references, tokenize="intl", lowercase=True, output_format="json"
    )
    figures = json.loads(capsys.readouterr().out)
    assert figures["lines"] == 3
    assert figures["bleu"]["score"] == pytest.approx(100.0)
    assert "nrefs:2|case:lc|eff:no|tok:intl" in figures["bleu"]["signature"]
    assert figures["chrf"]["score"] == pytest.approx(100.0)


def test_lines_are_what_is_between_line_feeds(tmp_path, capsys):
    hypotheses, reference = tmp_path / "hyp.gz", tmp_path / "ref"
    hypotheses.write_bytes(gzip.compress("\ufeffone\u2028two three four\r\n\x85five\rsix".encode()))
    reference.write_bytes("one\u2028two three four\n\x85five\rsix\r\n".encode())
    score.run(hypotheses, [reference], output_format="json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["lines"] == 2
    assert figures["bleu"]["brevity_penalty"] == 1.0
    assert figures["chrf"]["score"] == pytest.approx(100.0)


ENGLISH = [
    "Where is the nearest station, please?", "He never told her what he knew about it.",
    "The weather will be fine tomorrow morning.", "We would like to order two cups of coffee.",
    "Nobody had seen the old bridge since the flood.", "Her brother sells bread on the market.",
]  # fmt: skip
IN_GERMAN = [
    "Wo ist bitte der nächste Bahnhof?", "Er sagte ihr nie, was er darüber wusste.",
    "Das Wetter wird morgen früh schön sein.", "Wir möchten gerne zwei Tassen Kaffee bestellen.",
    "Niemand hatte die alte Brücke seit der Flut gesehen.", "Ihr Bruder verkauft Brot am Markt.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        (ENGLISH, None),
        (IN_GERMAN, "{hyp} seems to be German, and {ref} English; BLEU compares texts of one"),
        ([*ENGLISH[1:], ENGLISH[0]], "BLEU of {hyp} is below 2; does line n of it translate line"),
        (
            ["the the the the the the"] * 6,
            "BLEU of {hyp} is below 2; does line n of it translate line",
        ),
    ],
)
@pytest.mark.parametrize("is_compared", [False, True])
def test_a_very_low_bleu_gets_a_hint_at_its_cause(files, capsys, lines, hint, is_compared):
    hypotheses, references = files("hyp", lines), files("ref", ENGLISH)
    logs.configure(quiet=False)
    if is_compared:
        score.run(files("good", ENGLISH), [references], compared=[hypotheses], samples=10)
    else:
        score.run(hypotheses, [references])
    told = capsys.readouterr().err
    assert told.count("BLEU") == (hint is not None)
    if hint is not None:
        assert f"Warning: {hint.format(hyp=hypotheses, ref=references)}" in told


@pytest.mark.parametrize("name", ["b.docx", "b.PDF"])
def test_documents_are_refused(files, tmp_path, name):
    document = tmp_path / name
    document.write_bytes(b"PK\x03\x04")
    for paths in ((document, files("a", LINES)), (files("a", LINES), document)):
        with pytest.raises(UserError, match=rf"{name} is a document, and score compares lines"):
            score.run(paths[0], [paths[1]])


@pytest.mark.parametrize("stdin_is", ["hypotheses", "reference"])
def test_standard_input(files, capsys, monkeypatch, stdin_is):
    data = io.BytesIO("".join(f"{line}\n" for line in LINES).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    paths = [files("hyp", LINES), files("ref", LINES)]
    paths[stdin_is == "reference"] = STANDARD_INPUT
    score.run(paths[0], [paths[1]])
    assert capsys.readouterr().out.startswith("BLEU 100.00")


def test_numbers_of_segments_must_agree(files):
    hypotheses, good, short = files("h", LINES * 400), files("r", LINES * 400), files("s", LINES)
    with pytest.raises(UserError) as caught:
        score.run(hypotheses, [good, short])
    assert str(caught.value) == (
        f"{hypotheses} has 1,200 segments, {short} has 3; segment n of the hypotheses is compared "
        "with segment n of the references (one a line), so give files of the same text."
    )
    with pytest.raises(UserError, match=r"/one has 1 segment, .*/r has 1,200; segment n of "):
        score.run(files("one", LINES[:1]), [good])


def test_nothing_to_score(files):
    with pytest.raises(UserError, match=r"/hyp is empty; there is nothing to score"):
        score.run(files("hyp", []), [files("ref", [])])


def test_an_empty_text_is_named_on_either_side(files):
    for texts in ((files("a", []), files("b", LINES)), (files("b", LINES), files("a", []))):
        with pytest.raises(UserError, match=r"/a is empty; there is nothing to score"):
            score.run(texts[0], [texts[1]])


def test_missing_file(files, tmp_path):
    with pytest.raises(UserError, match="none not found"):
        score.run(tmp_path / "none", [files("ref", LINES)])


def test_tokenized_text_is_as_it_should_be_for_the_tokenizer_none(files, capsys):
    lines = ["A dog barks .", "It is late , he said ."]
    score.run(files("hyp", lines), [files("ref", lines)], tokenize="none")
    output, warnings = capsys.readouterr()
    assert output.startswith("BLEU 100.00")
    assert warnings == ""


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (["A dog barks .", "It is late , he said ."], "looks tokenized"),
        (["▁A ▁do g", "▁bark s"], "still in pieces"),
        (["A dog barks.", "It is late, he said."], ""),
    ],
)
def test_warns_of_text_that_is_not_plain(files, capsys, lines, warning):
    score.run(files("hyp", lines), [files("ref", LINES[:2])])
    stderr = capsys.readouterr().err
    assert warning in stderr
    assert ("Warning: " in stderr) == bool(warning)


GERMAN = ["Die 8-jährige Katze schläft.", "Der Zug hält in Bad-Neustadt usw."]
GERMAN_TOKENS = [
    "Die 8 ##AT##-##AT## jährige Katze schläft .",
    "Der Zug hält in Bad ##AT##-##AT## Neustadt usw .",
]


def test_the_papers_bleu_is_beside_sacrebleus(files, capsys):
    hypotheses = [line.replace("Katze", "Kuh") for line in GERMAN]
    tokens = [line.replace("Katze", "Kuh") for line in GERMAN_TOKENS]
    paths = files("hyp", hypotheses), [files("ref", GERMAN)]
    score.run(*paths, paper="en-de")
    bleu, paper, chrf = capsys.readouterr().out.splitlines()
    expected = sacrebleu.corpus_bleu(hypotheses, [GERMAN])
    assert bleu.startswith(f"BLEU {expected.score:.2f}  ")
    expected = sacrebleu.corpus_bleu(tokens, [GERMAN_TOKENS], tokenize="none", force=True)
    assert paper.startswith(f"paper's BLEU {expected.score:.2f}  ")
    assert "|tok:moses-de+split-compounds|" in paper
    assert chrf.startswith("chrF2 ")
    score.run(*paths, paper="en-de", ter=True, output_format="json")
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == ["lines", "bleu", "paper_bleu", "chrf", "ter"]
    assert figures["paper_bleu"]["score"] == expected.score
    assert figures["paper_bleu"]["hypothesis_length"] == expected.sys_len
    assert figures["ter"]["edits"] == 1


def test_ter_is_the_last_line(files, capsys):
    score.run(files("hyp", LINES), [files("ref", OTHERS)], ter=True)
    *others, ter = capsys.readouterr().out.splitlines()
    assert len(others) == 2
    assert ter.startswith(f"TER {sacrebleu.corpus_ter(LINES, [OTHERS]).score:.2f}  (3 edits, ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paper": "de-en"}, "--paper de-en: the paper's BLEU is defined for its language pairs "
         "only, en-de and en-fr. Leave --paper out for other pairs."),
        ({"paper": "EN_DE"}, "--paper EN_DE: the paper's BLEU is defined for its language pairs "
         "only, en-de and en-fr. Did you mean en-de?"),
        ({"paper": "en-de", "tokenize": "none"}, "--paper tokenizes plain text, but --tokenize "
         "none is for text that is tokenized already; leave one of the two out."),
        ({"paper": "en-fr", "lowercase": True},
         "the paper's BLEU is cased; leave --lowercase or --paper out."),
        ({"test": "bootstrap"}, "--test needs --compare SYSTEM, the translations to compare with."),
        ({"samples": 500}, "--samples needs --compare SYSTEM, the translations to compare with."),
        ({"seed": 5}, "--seed needs --compare SYSTEM, the translations to compare with."),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other(files, capsys, options, message):
    with pytest.raises(UserError) as caught:
        score.run(files("hyp", LINES), [files("ref", OTHERS)], **options)
    assert str(caught.value) == message
    assert capsys.readouterr().out == ""


def test_warns_that_the_papers_bleu_would_tokenize_tokenized_text_again(files, capsys):
    lines = ["A dog barks .", "It is late , he said ."]
    score.run(files("hyp", lines), [files("ref", LINES[:2])], paper="en-fr")
    warning = capsys.readouterr().err
    assert warning.count("looks tokenized") == 1
    assert "Detokenize it; --paper would tokenize it again.\n" in warning
    assert "--tokenize" not in warning


def test_long_segments_are_named_before_ter(files, capsys):
    same = [LINES[0], "a b " * 101]
    score.run(files("hyp", same), [files("ref", same)], ter=True)
    assert "hyp:2: 202 words; TER takes seconds to minutes" in capsys.readouterr().err


SOURCES = ["Die Katze sass auf der Matte.", "Ein Hund bellte laut.", "Es regnet Katzen und Hunde."]
TERMS = [
    "Katze\tcat ||| tomcat",
    "Hund\thound ||| Dog",
    "matte\tmat\tany",
    "Katzen\trains",
    "es\tit",
]


def test_terms_of_the_source_that_were_rendered_are_counted(files, capsys):
    paths = files("hyp", LINES), [files("ref", OTHERS)]
    options = {"terms": files("terms.tsv", TERMS), "source": files("source", SOURCES)}
    score.run(*paths, **options)
    assert capsys.readouterr().out.splitlines()[2:] == ["Terms 80.00  4 of 5 rendered"]
    score.run(*paths, **options, output_format="json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["terms"] == {"score": 80.0, "rendered": 4, "occurred": 5}
    score.run(*paths, **{**options, "terms": files("none.tsv", ["Maus\tmouse"])})
    assert capsys.readouterr().out.splitlines()[2:] == ["Terms: none occurs in the source"]


def test_terms_need_a_source_of_as_many_lines(files):
    paths, terms = (files("hyp", LINES), [files("ref", OTHERS)]), files("terms.tsv", TERMS)
    with pytest.raises(WrongUsageError, match="--terms and --source go together"):
        score.run(*paths, terms=terms)
    with pytest.raises(UserError, match=r"has 3 segments, .*short has 2"):
        score.run(*paths, terms=terms, source=files("short", LINES[:2]))
