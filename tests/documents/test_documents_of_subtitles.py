"""SRT and WebVTT: sentences over several cues, and that all else stays to the last byte."""

import random
import time

import pysubs2
import pytest

from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.translation import Translation
from tests.documents.filling import capitals, copied, shouted, texts_of

SRT = """\
1
00:00:01,000 --> 00:00:02,500
The old man reads
a book, and then

2
00:00:02,600 --> 00:00:04,000
<i>he goes home.</i>

3
00:00:05,000 --> 00:00:06,000 X1:40 X2:600
- Who is there?
- {\\an8}Nobody.

4
00:00:07,000 --> 00:00:08,000
♪♪

5
00:00:20,000 --> 00:00:21,000
我们有一只
狗。

6
00:00:22,000 --> 00:00:24,000
Costs 5 < 6 & more,
"""
VTT = """\
WEBVTT - a title
Kind: captions

NOTE
a note --> no timing

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.500 align:start
<v Åsa>Tom &amp; <b>Jerry</b>
are

00:02.600 --> 01:00:04.000
&lt;here&gt; <00:03.000>now.
"""


def test_sentences_are_joined_over_lines_and_cues():
    assert texts_of(read_document(SRT.encode(), "srt")) == [
        'The old man reads a book, and then <span id="1">he goes home.</span>',
        "- Who is there?",
        '- <wbr id="1"/>Nobody.',
        "♪♪",
        "我们有一只狗。",
        "Costs 5 &lt; 6 &amp; more,",
    ]
    assert texts_of(read_document(VTT.encode(), "vtt")) == [
        'Tom &#38; <span id="1">Jerry</span> are &#60;here&#62; <wbr id="2"/>now.'
    ]


@pytest.mark.parametrize(("text", "form"), [(SRT, "srt"), (VTT, "vtt")])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_all_but_the_texts_stays(text, form, line_end, encoding):
    data = text.replace("\n", line_end).encode(encoding)
    assert copied(data, form) == data
    # In capitals each text is as long as its source, so that it is divided in the same places.
    found = shouted(data, form).decode(encoding)
    assert found.lower() == data.decode(encoding).lower()
    assert "THE OLD MAN" in found or "TOM &amp; <b>JERRY</b>" in found
    assert ("<v Åsa>" in found) == ("<v Åsa>" in text)


def test_pysubs2_reads_what_is_written():
    found = shouted(SRT.encode(), "srt")
    before, after = (pysubs2.SSAFile.from_string(each.decode()) for each in (SRT.encode(), found))
    assert [(e.start, e.end) for e in after] == [(e.start, e.end) for e in before]
    assert [e.plaintext for e in after] == [e.plaintext.upper() for e in before]


def divided(translation, *lines, form="srt"):
    """Return the lines of cues with one line each, after a translation of all of them."""
    cues = [
        f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}\n\n" for n, line in enumerate(lines, 1)
    ]
    data = "".join([*cues, "9\n00:01:00,000 --> 00:01:02,000\nEnd.\n"]).encode()
    document = read_document(data, form)
    assert len(document.segments) == 2
    found = document.filled([Translation(translation), Translation(document.segments[1].text)])
    events = pysubs2.SSAFile.from_string(found.decode(), keep_html_tags=True)
    return [event.text for event in events][:-1]


def test_a_translation_is_divided_between_words_in_proportion():
    assert divided("eins zwei drei vier", "one two", "three four.") == ["eins zwei", "drei vier"]
    assert divided("aaaa bbbbbbbbbb", "one two three", "four.") == ["aaaa", "bbbbbbbbbb"]
    assert divided("ja", "one two three", "four.") == ["ja", ""]
    assert divided("", "one two three", "four.") == ["", ""]
    thai = divided("เขาอ่านหนังสือแล้วกลับบ้าน", "he reads a book", "then goes home.")
    assert "".join(thai) == "เขาอ่านหนังสือแล้วกลับบ้าน"
    assert all(thai)
    assert thai[1][0] not in "าำิีึืุู่้๊๋์ะ"
    chinese = divided("他读一本书，然后回家。", "he reads a book,", "then goes home.")
    assert chinese == ["他读一本书，", "然后回家。"]
    assert divided("他读书", "he reads", "a", "book.") == ["他", "读", "书"]


def test_codes_that_go_on_are_closed_and_opened():
    found = divided(
        '<span id="1">eins zwei drei</span> vier', "<i>one two</i> three", "four five six."
    )
    assert found == ["<i>eins zwei</i>", "<i>drei</i> vier"]
    data = b"1\n00:00:01,000 --> 00:00:02,000\n<i>one two\nthree.</i>\n"
    assert copied(data, "srt") == data
    assert b"<i>ONE TWO\nTHREE.</i>\n" in shouted(data, "srt")


def test_codes_around_nothing_are_left_out():
    found = divided(
        '<span id="1">eins</span><span id="2"></span><span id="3"></span> zwei',
        "<i>one</i> <i>two</i>",
        "<b>three</b>.",
    )
    assert found == ["<i>eins</i>", "zwei"]


def test_sentences_without_marks_are_not_joined_over_cues():
    cues = [f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\nสวัสดีครับ\n\n" for n in range(1, 13)]
    assert len(read_document("".join(cues).encode(), "srt").segments) == 12
    marked = "".join(cues) + "13\n00:01:00,000 --> 00:01:01,000\nx!\n\n" * 2
    assert len(read_document(marked.encode(), "srt").segments) == 4


@pytest.mark.parametrize(
    ("content", "form", "problem"),
    [
        ("", "srt", "it has no line with the times of a subtitle"),
        ("Plain text.\n", "srt", "it has no line with the times of a subtitle"),
        ("1\n00:00:01,000 --> soon\nx\n", "srt", "line 2 is no timing: '00:00:01,000 --> soon'"),
        ("1\n00:01 --> 00:02\nx\n", "srt", "line 2 is no timing: '00:01 --> 00:02'"),
        (
            "1\n00:00:01,000 --> 00:00:02,000\nx\n\n2\n00:00:02,000 --> 00:00;03,000\ny\n",
            "srt",
            "line 6 is no timing: '00:00:02,000 --> 00:00;03,000'",
        ),
        ("00:01.000 --> 00:02.000\nx\n", "vtt", "its first line is not WEBVTT"),
        (b"1\n\xff", "srt", "it is not in the encoding utf-8; convert it to UTF-8"),
    ],
)
def test_a_damaged_file_is_refused(content, form, problem):
    with pytest.raises(DocumentError) as caught:
        read_document(content if isinstance(content, bytes) else content.encode(), form)
    assert str(caught.value) == problem


NOISE = ["", "<i>", "</i>", "\n\n", "\u2028", "&", "{\\i1}", "x" * 500, "\x0b"]


@pytest.mark.parametrize("seed", range(60))
def test_any_file_comes_back_as_it_was(seed):
    generator = random.Random(seed)
    text, form = (SRT, "srt") if seed % 2 else (VTT, "vtt")
    for _ in range(3):
        place = generator.randrange(20, len(text))
        noise = generator.choice(NOISE)
        text = text[:place] + noise + text[place + generator.randrange(6) :]
    try:
        document = read_document(text.encode(), form)
    except DocumentError as error:
        document, text = None, str(error)
    if document is None:
        assert "\n" not in text
        return
    assert copied(text.encode(), form) == text.encode()
    every = [Translation(capitals(segment)) for segment in document.segments]
    assert document.filled(every) or not text


def test_a_long_line_is_a_sentence_by_itself():
    cue = "00:00:0{0},000 --> 00:00:0{0},500\n{1}\n\n"
    lines = ["a dog", "b" * 400, "c cat."]
    data = "".join(cue.format(*each) for each in enumerate(lines)).encode()
    assert texts_of(read_document(data, "srt")) == lines


def test_numbers_of_any_length():
    digits = "9" * 5000
    cue = f"00:01.000 --> 00:02.000\na &#{digits};\n"
    assert texts_of(read_document(f"WEBVTT\n\n{cue}".encode(), "vtt")) == [f"a &amp;#{digits};"]
    with pytest.raises(DocumentError, match="line 1 is no timing: '99999"):
        read_document(f"{digits}:{cue}".encode(), "srt")


def test_times_may_have_single_digits():
    data = b"1\n0:0:3,5 --> 0:0:4,0\na cat\n"
    assert copied(data, "srt") == data
    assert shouted(data, "srt") == data.replace(b"a cat", b"A CAT")


@pytest.mark.parametrize(
    ("form", "source", "expected"),
    [
        pytest.param(
            "vtt",
            "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n \nOne is here.\n\t\nTwo too.\n \n\nnote\n",
            "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n \nONE IS HERE.\n\t\nTWO TOO.\n \n\nnote\n",
            id="a line of blanks does not end a cue of WebVTT",
        ),
        pytest.param(
            "srt",
            "1\n00:00:01,000 --> 00:00:02,000\n\nOne is here.\n\n \nTwo too.\n\n\n2\n"
            "00:00:03,000 --> 00:00:04,000\nThree.\n\nFour.\n\n44\n",
            "1\n00:00:01,000 --> 00:00:02,000\n\nONE IS HERE.\n\n \nTWO TOO.\n\n\n2\n"
            "00:00:03,000 --> 00:00:04,000\nTHREE.\n\nFOUR.\n\n44\n",
            id="text of SRT goes on behind a blank line",
        ),
        pytest.param(
            "srt",
            "1\r\r\n00:00:01,000 --> 00:00:02,000\r\r\nOne is\r\r\nhere.\r\r\n\r\r\n2\r\r\n"
            "00:00:03,000 --> 00:00:04,000\r\r\nTwo.\r\r\n",
            "1\r\r\n00:00:01,000 --> 00:00:02,000\r\r\nONE IS\r\r\nHERE.\r\r\n\r\r\n2\r\r\n"
            "00:00:03,000 --> 00:00:04,000\r\r\nTWO.\r\r\n",
            id="CR CR LF is one end of a line",
        ),
        pytest.param(
            "vtt",
            "WEBVTT\r\r\n\r\r\n00:01.000 --> 00:02.000\r\r\nOne.\r\r\n",
            "WEBVTT\r\r\n\r\r\n00:01.000 --> 00:02.000\r\r\nONE.\r\r\n",
            id="in WebVTT, too",
        ),
        pytest.param(
            "srt",
            "1\n00:00:01 --> 00:00:02\nOne.\n",
            "1\n00:00:01 --> 00:00:02\nONE.\n",
            id="times without milliseconds",
        ),
        pytest.param(
            "srt",
            "1\n00:00:01,000 --> 00:00:02:500\nOne.\n\n2\n00:00:03:000 --> 00:00:04,000\n1 --> 2\n",
            "1\n00:00:01,000 --> 00:00:02:500\nONE.\n\n2\n00:00:03:000 --> 00:00:04,000\n1 --> 2\n",
            id="times with a colon before the milliseconds",
        ),
    ],
)
def test_text_between_odd_line_ends_is_translated(form, source, expected):
    data = source.encode()
    assert copied(data, form) == data
    assert shouted(data, form) == expected.encode()


def test_times_of_words_stay_in_order():
    head = "WEBVTT\n\n00:09.000 --> 00:12.000\n"
    source = "one<00:09.500><c> two</c><00:10.000><c> three</c>"
    document = read_document(f"{head}{source}\n".encode(), "vtt")
    (segment,) = document.segments
    first, second = (
        '<wbr id="1"/><span id="2"> two</span>',
        '<wbr id="3"/><span id="4"> three</span>',
    )
    assert segment.text == f"one{first}{second}"
    found = document.filled([Translation(f"one{second}{first}")]).decode()
    assert found == f"{head}one<00:09.500><c> three</c><00:10.000><c> two</c>\n"


def test_numbers_are_texts_where_cues_have_no_numbers():
    times = "00:00:0{},000 --> 00:00:0{},500\n".format
    plain = f"{times(1, 1)}In\n1999\n\n{times(3, 3)}yes.\n"
    assert texts_of(read_document(plain.encode(), "srt")) == ["In 1999 yes."]
    numbered = f"1\n{times(1, 1)}In\n1999\n\n2\n{times(3, 3)}yes.\n\n3\n\n{times(4, 4)}no.\n"
    assert texts_of(read_document(numbered.encode(), "srt")) == ["In 1999 yes.", "no."]
    assert copied(numbered.encode(), "srt") == numbered.encode()


def test_line_ends_are_found_in_linear_time():
    data = b"WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n\n" + b"\r" * 1_000_000
    started = time.monotonic()
    assert copied(data, "vtt") == data
    assert time.monotonic() - started < 10


OLDER = {
    "ru": ("cp1251", "Старик читает книгу и потом идёт домой. Где ты был вчера вечером?"),
    "el": ("cp1253", "Ο γέρος διαβάζει ένα βιβλίο και μετά πηγαίνει σπίτι. Πού ήσουν χθες;"),
    "pl": ("cp1250", "Stary człowiek czyta książkę, a potem idzie do domu. Gdzie byłeś wczoraj?"),
    "fr": ("cp1252", "Le vieil homme était là, près de la fenêtre. Où étais-tu hier après-midi ?"),
    "ja": ("cp932", "老人は本を読んで、それから家に帰ります。昨日の夜はどこにいましたか。"),
}


@pytest.mark.parametrize("language", OLDER)
def test_subtitles_in_an_older_encoding_of_their_language_are_read(language, caplog, monkeypatch):
    monkeypatch.setattr("nmt_cli.messages.logs._logger.propagate", True)
    encoding, text = OLDER[language]
    cues = "".join(
        f"{number}\r\n00:00:{number:02},000 --> 00:00:{number:02},900\r\n{text}\r\n\r\n"
        for number in range(1, 7)
    )
    data = cues.encode(encoding)
    document = read_document(data, "srt", languages=(language, "en"))
    assert set(texts_of(document)) == {text}
    assert document.filled([Translation(each) for each in texts_of(document)]) == cues.encode()
    assert "The subtitles are not UTF-8 but " in caplog.text
    for languages in (None, ("?", "?"), ("ko" if language == "ja" else "ja", "en")):
        with pytest.raises(DocumentError, match="it is not in the encoding utf-8; convert it to"):
            read_document(data, "srt", languages=languages)
    with pytest.raises(DocumentError):  # WebVTT is UTF-8 by its standard
        read_document(b"WEBVTT\n\n" + data, "vtt", languages=(language, "en"))
