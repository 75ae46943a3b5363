"""The command with documents: their segments go the way of lines, and the document comes back."""

import gzip
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import translate
from nmt_cli.commands.lines import line_windows, translation_record
from nmt_cli.commands.lines.document_text import read_document_text
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.commands.lines.translation_record import partial_of, record_path
from nmt_cli.files.lines import is_blank
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator
from tests.documents.archives import docx
from tests.fake_models import copying, tiny_recipe
from tests.folders_in_memory import tmp_path as tmp_path
from tests.tagging import StandIn

FORMATS = Path(__file__).parents[1] / "formats"
PAGE = b"<h1>a cat</h1>\r\n<p>a <b>dog</b> ran</p><p>a cat</p><hr>\n<p>bad one</p>\n"


class Shouting(StandIn):
    """Answers each segment in capitals, without its tags; one fails, and one may end the run."""

    chosen: ClassVar = {"model": "a" * 64, "precision": "fp32"}
    ends_at: str | None = None

    def __init__(self):
        self.texts = []

    def translate_window(self, lines):
        self.texts += [line.text for line in lines]
        if self.ends_at in self.texts:
            raise KeyboardInterrupt
        return [self.answer(line.text) for line in lines]

    def answer(self, text):
        if is_blank(text) or "bad" in text:
            return Translation(error="it is bad") if "bad" in text else Translation()
        return Translation(text.upper().replace("<B>", "<b>").replace("</B>", "</b>"), -1.0)


@pytest.fixture
def shouting(monkeypatch, tmp_path):
    translator = Shouting()
    monkeypatch.setattr(Translator, "load", lambda *_, **__: translator)
    monkeypatch.setattr(translation_record, "fingerprints", lambda _: "a" * 64)
    monkeypatch.setattr(translate, "_with_languages", without_languages)
    monkeypatch.chdir(tmp_path)
    return translator


def without_languages(model, *_):
    return model, (UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE)


def run(*arguments, data=b""):
    given = ["translate", "model", "--workers", "1", *map(str, arguments)]
    return CliRunner().invoke(cli.main, given, input=data)


def test_the_ending_decides_and_equal_segments_are_translated_once(shouting, tmp_path):
    (tmp_path / "page.html").write_bytes(PAGE)
    done = run("--input", "page.html", "--output", "out.html")
    assert done.exit_code == 3
    message = "1 segment was not translated: it is bad (first: segment 4, 'bad one').\n"
    assert done.stderr.count(message) == done.stderr.count("bad one") == 1
    assert "Translated 3 segments" in done.stderr
    assert (tmp_path / "out.html").read_bytes() == (
        b"<h1>A CAT</h1>\r\n<p>A <b>DOG</b> RAN</p><p>A CAT</p><hr>\n<p>bad one</p>\n"
    )
    assert shouting.texts == ["a cat", "a <b>dog</b> ran", "bad one"]
    assert not partial_of(tmp_path / "out.html").exists()


def test_an_office_document(shouting, tmp_path):
    text = '<w:p><w:r><w:t xml:space="preserve">{}</w:t></w:r></w:p>'
    (tmp_path / "a.docx").write_bytes(docx(text.format("a cat")))
    assert run("--input", "a.docx", "--output", "b.docx").exit_code == 0
    assert (tmp_path / "b.docx").read_bytes() == docx(text.format("A CAT"))
    piped = run("--input-format", "docx", data=docx(text.format("a cat")))
    assert piped.stdout_bytes == docx(text.format("A CAT"))
    (tmp_path / "c.docx").write_bytes(b"")
    message = "c.docx cannot be read as docx: it is no zip file, or is damaged"
    assert message in run("--input", "c.docx").stderr


def test_documents_name_the_language_of_the_model(shouting, tmp_path, monkeypatch):
    monkeypatch.setattr(translate, "_with_languages", lambda model, *_: (model, ("en", "nb")))
    properties = '<w:rPr><w:lang w:val="{}"/></w:rPr>'
    text = f'<w:p><w:r>{properties}<w:t xml:space="preserve">{{}}</w:t></w:r></w:p>'
    (tmp_path / "a.docx").write_bytes(docx(text.format("en-US", "a cat")))
    assert run("--input", "a.docx", "--output", "b.docx").exit_code == 0
    assert (tmp_path / "b.docx").read_bytes() == docx(text.format("nb", "A CAT"))
    (tmp_path / "a.html").write_bytes(b'<html lang="en"><p>a cat</p></html>')
    assert run("--input", "a.html", "--output", "b.html").exit_code == 0
    assert (tmp_path / "b.html").read_bytes() == b'<html lang="nb"><p>A CAT</p></html>'


def test_a_document_goes_from_stdin_to_stdout(shouting):
    done = run("--input-format", "markdown", data=b"# a cat\n\n* a dog\n")
    assert (done.exit_code, done.stdout_bytes) == (0, b"# A CAT\n\n* A DOG\n")


def test_lines_of_a_page_are_asked_for(shouting, tmp_path):
    (tmp_path / "page.html").write_bytes(b"<p>a cat</p>\n<p>a dog</p>\n")
    for options in (["--input-format", "text"], ["--markup", "html"]):
        done = run("--input", "page.html", *options)
        assert done.stdout_bytes == b"<P>A CAT</P>\n<P>A DOG</P>\n"


def test_an_interrupted_document_goes_on(shouting, tmp_path, monkeypatch):
    monkeypatch.setattr(line_windows, "MOST_LINES", {"cpu": 3, "cuda": 3})
    page = "".join(f"<p>text {number} of <i>many</i></p>\n" for number in range(10)).encode()
    (tmp_path / "page.html").write_bytes(page)
    shouting.ends_at = "text 7 of <i>many</i>"
    given = ["--input", "page.html", "--output", "out.html"]
    done = run(*given)
    assert done.exit_code == 130
    assert not (tmp_path / "out.html").exists()
    shouting.ends_at, shouting.texts = None, []
    assert run(*given).exit_code == 1  # --resume or --force is missing
    assert shouting.texts == []
    done = run(*given, "--resume")
    assert (done.exit_code, shouting.texts[0]) == (0, "text 6 of <i>many</i>")
    assert (tmp_path / "out.html").read_bytes() == page.upper().replace(b"P>", b"p>")
    again = run(*given, "--resume")
    assert (again.exit_code, "nothing to do" in again.stderr) == (0, True)
    # The same segments in another document are not that document.
    (tmp_path / "page.html").write_bytes(page.replace(b"<p>", b"<p >"))
    other = run(*given, "--resume")
    assert (other.exit_code, "made from another text" in other.stderr) == (1, True)


def test_compressed_output(shouting, tmp_path):
    (tmp_path / "page.html.gz").write_bytes(gzip.compress(PAGE))
    given = ["--input", "page.html.gz", "--input-format", "html", "--output", "out.html.gz"]
    assert run(*given).exit_code == 3
    assert b"<h1>A CAT</h1>" in gzip.decompress((tmp_path / "out.html.gz").read_bytes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", "2"], "--n-best 2 is for lines, but the input is html; leave it out, or"),
        (["--format", "jsonl"], "--format jsonl is for lines, but the input is html"),
        (["--alignments"], "--alignments is for lines, but the input is html"),
        (["--shard", "1/2"], "--shard cuts texts of lines; a document has none."),
        (["--output", "out.md"], "page.html is html, and so is its translation, but the name out"),
    ],
)
def test_options_that_a_document_has_no_place_for(shouting, tmp_path, options, message):
    (tmp_path / "page.html").write_bytes(PAGE)
    done = run("--input", "page.html", *options)
    assert (done.exit_code, shouting.texts) == (2, [])
    assert message in done.stderr


@pytest.mark.parametrize("ending", ["docx", "epub"])
def test_lines_of_text_are_not_written_as_an_archive(shouting, tmp_path, ending):
    (tmp_path / "a.txt").write_text("a cat\n")
    done = run("--input", "a.txt", "--output", f"b.{ending}")
    assert (done.exit_code, shouting.texts) == (2, [])
    assert f"a.txt has lines of text, and so has its translation, but the name b.{ending}" in (
        done.stderr
    )
    assert not (tmp_path / f"b.{ending}").exists()


@pytest.mark.parametrize(
    ("options", "output", "message"),
    [
        ("", "b.docx", "standard input has lines of text, and so has its translation, but the"),
        ("--input -", "b.srt", "standard input has lines of text, and so has its translation"),
        ("--input a.txt", "b.xlf", "but the name b.xlf is that of xliff"),
        ("--input a.txt", "b.xml", "but the name b.xml is that of xml"),
        ("--input-format text", "b.odt", "but the name b.odt is that of odt"),
        ("--input-format jsonl", "b.docx", "but the name b.docx is that of docx"),
        ("--markup html", "b.epub", "but the name b.epub is that of epub"),
        ("--input-format html", "b.docx", "standard input is html, and so is its translation"),
        ("--input-format srt", "b.vtt", "give an --output that ends in .srt."),
        ("--input a.txt --input-format po", "b.tmx", "that ends in .po or .pot."),
    ],
)
def test_no_output_has_the_name_of_another_format(shouting, tmp_path, options, output, message):
    (tmp_path / "a.txt").write_text("a cat\n")
    done = run(*options.split(), "--output", output, data=b"a cat\n")
    assert (done.exit_code, shouting.texts) == (2, [])
    assert message in done.stderr
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize(
    "options",
    [
        "--output b.html",
        "--output b.md",
        "--input-format text --output b.srt",
        "--markup xml --output b.xml",
        "--input-format xml --output b.html",
    ],
)
def test_names_of_formats_that_the_output_has(shouting, options):
    assert run(*options.split(), data=b"<p>a cat</p>\n").exit_code == 0


@pytest.mark.parametrize("options", [[], ["--output", "-"]])
def test_an_archive_is_not_shown_on_a_terminal(shouting, tmp_path, monkeypatch, options):
    monkeypatch.setattr(StandardOutput, "reader", "terminal")
    text = '<w:p><w:r><w:t xml:space="preserve">a cat</w:t></w:r></w:p>'
    (tmp_path / "a.docx").write_bytes(docx(text))
    done = run("--input", "a.docx", *options)
    assert (done.exit_code, done.stdout_bytes, shouting.texts) == (2, b"", [])
    assert "docx, which a terminal cannot show; add --output FILE.docx." in done.stderr
    (tmp_path / "page.html").write_bytes(b"<p>a cat</p>")
    assert run("--input", "page.html", *options).stdout_bytes == b"<p>A CAT</p>"


def test_a_damaged_document_leaves_nothing(shouting, tmp_path):
    (tmp_path / "a.xml").write_bytes(b"<a><b></a>")
    done = run("--input", "a.xml", "--output", "b.xml")
    assert done.exit_code == 1
    assert done.stderr == (
        "Error: a.xml cannot be read as xml: it is not XML: mismatched tag at character 9.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.xml"]


def test_a_model_that_copies_gives_the_document_back(monkeypatch, tmp_path):
    translator = copying(
        monkeypatch, recipe=tiny_recipe(data={"max_length": 200}), split_sentences=False
    )[0]
    monkeypatch.setattr(Translator, "load", lambda *_, **__: translator)
    monkeypatch.setattr(translate, "_with_languages", without_languages)
    page = "<h1>Eine Überschrift</h1>\n<p>猫が好きです。<br>مرحبا &amp; <hr>\n<p>ไทย</p>".encode()
    (tmp_path / "page.html").write_bytes(page)
    output = tmp_path / "out.html"
    assert run("--input", tmp_path / "page.html", "--output", output).exit_code == 0
    assert output.read_bytes() == page
    assert record_path(output).exists()


def test_what_has_a_translation_is_only_translated_again_if_asked(shouting, tmp_path):
    (tmp_path / "a.po").write_text('msgid "a cat"\nmsgstr "ei katt"\n')
    assert run("--input", "a.po", "--output", "b.po").exit_code == 0
    assert (tmp_path / "b.po").read_bytes() == (tmp_path / "a.po").read_bytes()
    assert shouting.texts == []
    assert run("--input", "a.po", "--output", "c.po", "--retranslate").exit_code == 0
    assert (tmp_path / "c.po").read_text() == 'msgid "a cat"\nmsgstr "A CAT"\n'
    refused = run("--retranslate", data=b"a cat\n")
    assert refused.stderr.startswith("Error: --retranslate is for documents that have translations")


def test_a_memory_gets_texts_in_the_languages_of_the_model(shouting, tmp_path, monkeypatch):
    monkeypatch.setattr(translate, "_with_languages", lambda model, *_: (model, ("en", "nb")))
    unit = '<tu><tuv xml:lang="en-GB"><seg>a cat</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f"<tmx><body>{unit}</body></tmx>")
    assert run("--input", "a.tmx", "--output", "b.tmx").exit_code == 0
    variant = '<tuv xml:lang="nb" creationtool="nmt-cli"><seg>A CAT</seg></tuv>'
    assert variant in (tmp_path / "b.tmx").read_text()


def test_only_xliff_has_a_place_for_several_translations(shouting, tmp_path, monkeypatch):
    monkeypatch.setattr(translate, "_with_languages", lambda model, *_: (model, ("en", "nb")))
    (tmp_path / "a.xlf").write_text("<xliff version='1.2'/>")
    assert run("--input", "a.xlf", "--output", "b.xlf", "--n-best", "2").exit_code == 0
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr ""\n')
    refused = run("--input", "a.po", "--n-best", "2")
    assert refused.stderr.startswith("Error: --n-best 2 is for lines, but the input is po;")


@pytest.mark.parametrize("name", ["a.po", "a.xlf", "a.tmx", "a.srt", "a.vtt"])
def test_samples_cannot_keep_placeholders(shouting, tmp_path, name):
    (tmp_path / name).write_text("a %s")
    refused = run("--input", name, "--sample")
    assert (refused.exit_code, shouting.texts) == (2, [])
    assert refused.stderr.startswith("Error: --sample is for lines, but the input is ")


def test_the_model_of_a_memory_is_named_once(tmp_path):
    folder = FORMATS / "format_2/whitespace/run"
    unit = '<tu><tuv xml:lang="en"><seg>a cat</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f"<tmx><body>{unit}</body></tmx>")
    given = ["translate", folder, "--input", tmp_path / "a.tmx", "--device", "cpu"]
    done = CliRunner().invoke(cli.main, [*map(str, given)])
    assert done.stderr.count("Using ") == 1, done.stderr


@pytest.mark.parametrize(
    ("ending", "other"),
    [("PDF", "docx"), ("ass", "srt"), ("ttml", "srt"), ("fodt", "odt"), ("svg", "xlf")],
)
def test_documents_that_are_not_read_are_no_lines(ending, other, shouting, tmp_path):
    (tmp_path / f"b.{ending}").write_bytes(b"<a>text</a>")
    refused = run("--input", f"b.{ending}")
    assert (refused.exit_code, shouting.texts) == (2, [])
    assert refused.stderr == (
        f"Error: b.{ending}: documents of .{ending} cannot be translated; save it in another "
        f"format, such as .{other}, or add --input-format text if it has lines of text.\n"
    )
    (tmp_path / "a.PDF").write_bytes(b"%PDF-1.4")
    assert run("--input", "a.PDF", "--input-format", "text").stdout == "%PDF-1.4"


@pytest.mark.parametrize(("resume", "output"), [([], []), (["--resume"], ["--output", "b.po"])])
def test_what_is_left_out_has_one_line_for_each_reason(shouting, tmp_path, resume, output):
    entries = ["bad 1", "good", "bad 2", "one\\nbad 3", "%d%s dogs", "%d%s cats"]
    texts = "\n".join(f'#, c-format\nmsgid "{each}"\nmsgstr ""\n' for each in entries)
    (tmp_path / "a.po").write_text(texts)
    stderr = run("--input", "a.po", *output).stderr
    assert [line for line in stderr.splitlines() if "not translated" in line] == [
        "Warning: 3 segments were not translated: it is bad (first: segment 1, 'bad 1').",
        "Warning: 2 segments were not translated: its translation has other format directives "
        "or other branches of ICU than its source (first: segment 6, '%d%s dogs').",
    ]
    if resume:
        again = run("--input", "a.po", *output, *resume)
        assert (again.exit_code, "5 lines of b.po could not" in again.stderr) == (3, True)


def test_formats_that_differ_alone_are_failures_also_when_a_finished_output_is_resumed(
    shouting, tmp_path
):
    (tmp_path / "a.po").write_text('#, c-format\nmsgid "%d%s dogs"\nmsgstr ""\n')
    given = ["--input", "a.po", "--output", "b.po"]
    assert [run(*given).exit_code, run(*given, "--resume").exit_code] == [3, 3]
    assert (tmp_path / "b.po").read_bytes() == (tmp_path / "a.po").read_bytes()


def test_locked_texts_are_named_and_are_no_failures(shouting, tmp_path, monkeypatch):
    monkeypatch.setattr(translate, "_with_languages", lambda model, *_: (model, ("en", "nb")))
    units = "".join(
        f"<trans-unit {lock}><source>{text}</source></trans-unit>"
        for text, lock in [("a cat", ""), ("a key", "translate='no'"), ("x", "m:locked='true'")]
    )
    source = f"<xliff version='1.2' xmlns:m='m'><file><body>{units}</body></file></xliff>"
    (tmp_path / "a.xlf").write_text(source)
    done = run("--input", "a.xlf")
    message = "2 segments were not translated: locked by the document (first: 'a key')."
    assert (done.exit_code, done.stderr.count(message), shouting.texts) == (0, 1, ["a cat"])


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.po", 'msgid "a"\nmsgstr "b"\n', "each text has a translation or is locked; --retrans"),
        ("a.html", "<hr>", "it has no text."),
        ("a.xlf", "<xliff><trans-unit><source>a</source><target>b</target></trans-unit></xliff>",
         "each text has a translation or is locked; --retranslate translates again."),
        ("a.tmx", "<tmx><body><tu><tuv xml:lang='fr'><seg>a</seg></tuv><tuv xml:lang='de-AT'>"
         "<seg>b</seg></tuv></tu></body></tmx>",
         "it has no text in en: its languages are fr and de-AT."),
    ],
)  # fmt: skip
def test_why_nothing_is_translated(shouting, tmp_path, monkeypatch, name, text, reason):
    monkeypatch.setattr(translate, "_with_languages", lambda model, *_: (model, ("en", "nb")))
    (tmp_path / name).write_text(text)
    done = run("--input", name)
    assert (done.exit_code, done.stdout) == (0, text)
    assert f"Nothing was translated: {reason}" in done.stderr


PO = 'msgid ""\nmsgstr "Language: {}\\n"\n\nmsgid "a cat"\nmsgstr ""\n'
XLIFF = (
    '<xliff version="1.2"><file source-language="{}" target-language="{}"><body><trans-unit id="1">'
    "<source>a cat</source></trans-unit></body></file></xliff>"
)
XLIFF_2 = '<xliff version="2.0" srcLang="{}" trgLang="{}"><file id="1"/></xliff>'


@pytest.mark.parametrize(
    ("form", "text", "warnings"),
    [
        ("po", PO.format("tr"), ["says that its translations are in tr, but the model translates"]),
        ("po", PO.format("de_AT@euro"), []),
        ("po", PO.format(""), []),
        ("po", PO.format("german"), []),
        ("xliff", XLIFF.format("en-US", "de-DE"), []),
        ("xliff", XLIFF.format("fr", "tr"), ["sources are in fr", "into de."]),
        ("xliff", XLIFF_2.format("fr", "de"), ["sources are in fr, but the model translates from"]),
    ],
)
def test_a_document_in_other_languages_than_the_model(tmp_path, caplog, form, text, warnings):
    (tmp_path / "a").write_text(text)
    read_document_text(tmp_path / "a", form, again=False, languages=("en", "de"))
    assert len(caplog.messages) == len(warnings)
    for warning, message in zip(warnings, caplog.messages, strict=True):
        assert warning in message


@pytest.mark.parametrize("own", ["und", "zsm", "zsm_Latn"])
def test_a_model_of_an_unknown_language_may_be_of_that_of_a_document(tmp_path, caplog, own):
    (tmp_path / "a.po").write_text(PO.format("ms"))
    read_document_text(tmp_path / "a.po", "po", again=False, languages=("en", own))
    assert caplog.messages == []


def test_a_table_is_translated_with_a_warning(shouting, tmp_path):
    (tmp_path / "a.tsv").write_text("a cat\teine Katze\n" * 2)
    warned = run("--input", "a.tsv")
    assert (warned.exit_code, warned.stdout) == (0, "A CAT\tEINE KATZE\n" * 2)
    assert "cut -f1 a.tsv | nmt-cli translate" in warned.stderr
    (tmp_path / "a.txt").write_text("a cat\n" * 2)
    assert "Warning" not in run("--input", "a.txt").stderr
