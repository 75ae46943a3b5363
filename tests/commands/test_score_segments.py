"""chrF++, references in columns, documents, and scores of each line, as sacrebleu computes them."""

import json
import subprocess
import sys

import pytest
import sacrebleu

from nmt_cli.commands import score
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError

HYPOTHESES = ["The cat sat on the mat.", "A dog barked.", "", "Det er sent på kvelden.", "我喜欢书"]
REFERENCES = [
    "The cat sat on a mat.",
    "One dog barks loudly.",
    "It rains.",
    "Det er sent nå.",
    "书",
]
OTHERS = ["A cat sat on the mat.", "A dog barks.", "", "Kvelden er sein.", "我喜欢读书"]
IDS = ["news\t1", "talk", "news\t1", " talk ", "空"]


@pytest.fixture
def paths(files):
    return files("hyp", HYPOTHESES), [files("ref", REFERENCES), files("ref2", OTHERS)]


def figures_of(capsys, *arguments, **options):
    score.run(*arguments, **options, output_format="json")
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("order", "name"), [(1, "chrF2+"), (2, "chrF2++")])
def test_chrf_counts_words_too(paths, capsys, order, name):
    score.run(*paths, chrf_word_order=order)
    line = capsys.readouterr().out.splitlines()[1]
    expected = sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES, OTHERS], word_order=order)
    without = sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES, OTHERS])
    assert line.startswith(f"{name} {expected.score:.2f}  nrefs:2|")
    assert f"|nc:6|nw:{order}|" in line
    assert f"{expected.score:.2f}" != f"{without.score:.2f}"


def test_references_in_columns_are_those_in_files(files, paths, capsys):
    columns = files("both.tsv", map("\t".join, zip(REFERENCES, OTHERS, strict=True)))
    assert figures_of(capsys, paths[0], [columns], num_refs=2) == figures_of(capsys, *paths)
    with pytest.raises(UserError, match=r"both.tsv:1 has 2 columns, --num-refs is 3; "):
        score.run(paths[0], [columns], num_refs=3)
    with pytest.raises(WrongUsageError, match=r"--num-refs 2 is for one file .*; 2 files are"):
        score.run(*paths, num_refs=2)


def test_the_scores_of_each_line_are_the_sentence_scores_of_sacrebleu(paths, capsys):
    logs.configure(quiet=False)
    score.run(*paths, by_line=True, chrf_word_order=2, ter=True)
    output, log = capsys.readouterr()
    header, *rows = [line.split("\t") for line in output.splitlines()]
    assert header == ["line", "bleu", "chrf", "ter"]
    for number, (hypothesis, *references) in enumerate(
        zip(HYPOTHESES, REFERENCES, OTHERS, strict=True)
    ):
        expected = [
            sacrebleu.sentence_bleu(hypothesis, references, use_effective_order=True),
            sacrebleu.sentence_chrf(hypothesis, references, word_order=2),
            sacrebleu.sentence_ter(hypothesis, references),
        ]
        assert rows[number] == [str(number + 1), *(f"{each.score:.2f}" for each in expected)]
    assert f"BLEU {sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, OTHERS]).score:.2f}  " in log
    assert "bleu: nrefs:2|case:mixed|eff:yes|" in log


def test_the_program_of_sacrebleu_prints_the_same_for_each_line(paths, capsys):
    score.run(*paths, by_line=True)
    ours = [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()[1:]]
    command = [sys.executable, "-m", "sacrebleu", *paths[1], "-i", paths[0], "-sl", "-b", "-w", "2"]
    theirs = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert ours == theirs.split()


def test_the_worst_lines_come_with_all_their_texts(files, paths, capsys):
    source = files("source", ["eins", "zwei", "drei", "vier\x1b[31m", "fünf"])
    score.run(*paths, worst=2, source=source)
    output = capsys.readouterr().out
    first, *paragraphs = output.split("\n\n")
    assert first.startswith("BLEU ")
    scores = [
        sacrebleu.sentence_chrf(hypothesis, references).score
        for hypothesis, *references in zip(HYPOTHESES, REFERENCES, OTHERS, strict=True)
    ]
    assert min(scores) == scores[2]
    assert paragraphs[0].splitlines() == [
        "line 3  BLEU 0.00  chrF2 0.00",
        "  source       drei",
        "  hypothesis   ",
        "  reference 1  It rains.",
        "  reference 2  ",
    ]
    assert paragraphs[1].startswith(f"line {scores.index(sorted(scores)[1]) + 1}  ")
    score.run(*paths, worst=50, source=source)
    output = capsys.readouterr().out
    assert output.count("\nline ") == len(HYPOTHESES)
    assert "  source       vier\\x1b[31m\n" in output
    found = figures_of(capsys, *paths, worst=1)["segments"]
    assert found["scores"] == [
        {"line": 3, "bleu": 0.0, "chrf": 0.0, "hypothesis": "", "reference 1": "It rains.",
         "reference 2": ""},
    ]  # fmt: skip


def test_documents_are_scored_as_one_segment_each(files, paths, capsys):
    def joined(lines):
        return [f"{lines[0]} {lines[2]}", f"{lines[1]} {lines[3]}", lines[4]]

    ids = files("ids", IDS)
    texts = joined(HYPOTHESES), [joined(REFERENCES), joined(OTHERS)]
    score.run(*paths, documents=ids)
    bleu, chrf = capsys.readouterr().out.splitlines()
    assert bleu.startswith(f"d-BLEU {sacrebleu.corpus_bleu(*texts).score:.2f}  ")
    assert chrf.startswith(f"d-chrF2 {sacrebleu.corpus_chrf(*texts).score:.2f}  ")
    score.run(*paths, documents=ids, by_line=True)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["document", "news 1", "talk", "空"]
    second = sacrebleu.sentence_chrf(texts[0][1], [each[1] for each in texts[1]])
    assert rows[2][2] == f"{second.score:.2f}"
    figures = figures_of(capsys, *paths, documents=ids, by_line=True)
    assert (figures["lines"], figures["documents"]) == (5, 3)
    assert figures["segments"]["scores"][1]["document"] == "talk"
    assert figures["segments"]["scores"][1]["chrf"] == second.score


def test_documents_need_an_id_on_each_line(files, paths):
    with pytest.raises(UserError, match=r"ids:3 is blank; --documents needs the id of a document"):
        score.run(*paths, documents=files("ids", ["a", "a", " ", "b", "b"]))
    with pytest.raises(UserError, match=r"hyp has 5 segments, .*ids has 2"):
        score.run(*paths, documents=files("ids", ["a", "b"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by_line": True, "worst": 3},
         "--by-line has all lines, --worst some of them; leave one out."),
        ({"by_line": True, "compared": ["other"]},
         "--by-line is about HYPOTHESES alone; leave it or --compare out."),
        ({"worst": 3, "compared": ["other"]},
         "--worst is about HYPOTHESES alone; leave it or --compare out."),
        ({"documents": "ids", "paper": "en-de"},
         "the paper's BLEU is of sentences; leave --documents or --paper out."),
        ({"source": "source"},
         "--source is read for --terms and --worst only; add one of them, or leave it out."),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other(paths, options, message):
    with pytest.raises(WrongUsageError) as caught:
        score.run(*paths, **options)
    assert str(caught.value) == message
