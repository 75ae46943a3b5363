"""PO files: what is translated, and that all else stays to the last byte."""

import itertools
import random
import re
import shutil
import subprocess
import time

import polib
import pytest

from nmt_cli.corpus.text import po_files
from nmt_cli.documents.document import CHANGED, DocumentError, LeftOut
from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.translation import Translation
from tests.documents.filling import copied, left_out, shouted, texts_of, translated

HEADER = """\
# Translators: Åsa
msgid ""
msgstr ""
"Language: nb\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

"""
# An entry with "" in place of each translation, and how that is written if it is copied.
ENTRIES = [
    ('#: a.c:1\n#, c-format\nmsgctxt "menu"\nmsgid "Open %s\\n"\nmsgstr ""\n', ["Open %s\\n"]),
    ('msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n', [
        "one file", "%d files"
    ]),
    ('msgid "我们有一只狗。"\nmsgstr   ""\n', ["我们有一只狗。"]),
    ('msgid "Tom & <b>Jerry</b> \\"%(name)s\\" &amp; \\\\ \\t{0}"\nmsgstr ""\n', [
        'Tom & <b>Jerry</b> \\"%(name)s\\" &amp; \\\\ \\t{0}'
    ]),
    ('msgid "a <i>big</i> dog &lt;"\nmsgstr ""\n', ["a <i>big</i> dog &lt;"]),
    ('msgid ""\n"Usage: x\\n"\n"\\n"\n"  -v verbose\\n"\nmsgstr ""\n', [
        '"\n"Usage: x\\n"\n"\\n"\n"  -v verbose\\n'
    ]),
]  # fmt: skip
KEPT = """\
#, fuzzy
#| msgid "old"
msgid "fuzzy"
msgstr "usikker"

msgid "done"
msgstr ""
"ferdig "
"nå"

#~ msgid "gone"
#~ msgstr ""
"""


def with_copies(entry, copies):
    for copy in copies:
        place = entry.index('""', entry.rindex("msgid"))
        while not entry[:place].rsplit("\n", 1)[-1].startswith("msgstr"):
            place = entry.index('""', place + 1)
        entry = f'{entry[:place]}"{copy}"{entry[place + 2 :]}'
    return entry


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_copy_differs_in_the_translations_alone(line_end):
    source, expected = (
        (HEADER + "\n".join([*entries, KEPT])).replace("\n", line_end).encode()
        for entries in ([entry for entry, _ in ENTRIES], [with_copies(*each) for each in ENTRIES])
    )
    assert copied(source, "po") == expected
    assert copied(expected, "po") == expected
    assert texts_of(read_document(expected, "po")) == []
    assert copied(source[:-1], "po") == expected[:-1]


def test_polib_reads_what_is_written():
    generator = random.Random(5)
    parts = ["a", '"', "\\", "\n", "\t", "我们", "%s", " ", "é", "\x01", "<b>x</b>", "word " * 30]
    made = polib.POFile(wrapwidth=40)
    made.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for number in range(80):
        entry = polib.POEntry(msgid=f"{number} " + "".join(generator.choices(parts, k=6)))
        made.append(entry)
    data = str(made).encode()
    done = polib.pofile(copied(data, "po").decode())
    assert [entry.msgstr for entry in done] == [entry.msgid for entry in made]
    again = polib.pofile(str(made))
    for entry in again:
        entry.msgstr = entry.msgid
    assert [entry.msgstr for entry in again] == [entry.msgid for entry in done]


def test_what_is_asked_for_again():
    data = (HEADER + ENTRIES[0][0] + "\n" + KEPT).encode()
    document = read_document(data, "po", again=True)
    assert texts_of(document) == ["Open %s", "fuzzy", "done"]
    filled = document.filled([Translation(text.upper()) for text in texts_of(document)]).decode()
    assert 'msgstr "DONE"\n' in filled
    assert '#, fuzzy\n#| msgid "old"\nmsgid "fuzzy"\nmsgstr "FUZZY"' in filled
    assert [e.msgstr for e in polib.pofile(filled)] == ["", "FUZZY", "DONE", ""]  # %S is no %s


def test_placeholders_and_tags_are_protected():
    data = (HEADER + "\n".join(entry for entry, _ in ENTRIES)).encode()
    found = read_document(data, "po").segments
    protected = [
        [each.text[m.begin : m.end] for m in Protection(each.protect).found_in(each.text)]
        for each in found
    ]
    assert protected[0] == ["%s"]
    assert protected[2] == ["%d"]
    assert protected[4] == ["<b>", "</b>", "%(name)s", "&amp;", "{0}"]
    assert [each.markup for each in found] == [None] * 5 + ["xml", None, None]
    assert 'msgstr "A <i>BIG</i> DOG &lt;"' in shouted(data, "po").decode()


def test_a_template_and_an_encoding_that_lacks_a_character_become_utf_8():
    entry = 'msgid "dog"\nmsgstr ""\n'
    for charset, encoding in (("CHARSET", "utf-8"), ("ISO-8859-1", "latin-1")):
        data = (HEADER.replace("UTF-8", charset) + entry).encode(encoding)
        document = read_document(data, "po")
        expected = data[: -len(entry)] + entry.replace('""', '"Hund"').encode()
        assert document.filled([Translation("Hund")]) == expected
        chinese = document.filled([Translation("狗")]).decode()
        assert "charset=UTF-8" in chinese
        assert "Åsa" in chinese
        assert chinese.endswith('msgstr "狗"\n')


def test_a_text_of_which_a_line_failed_has_no_translation():
    data = (HEADER + ENTRIES[5][0] + "\n" + ENTRIES[2][0]).encode()
    document = read_document(data, "po")
    found = [Translation("a"), Translation("-v", error="it is bad"), Translation("b")]
    expected = data.decode().replace('msgstr   ""', 'msgstr   "b"')
    assert document.filled(found).decode() == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("Plain text.\n", "line 1: 'Plain text.' is no line of a PO file"),
        ('msgid "a"\nmsgid "b"\n', "line 2: msgid is given twice in an entry"),
        ('msgid "a"\n', "line 1: an entry ends here that has no msgid and msgstr"),
        (
            HEADER.replace("UTF-8", "Klingon"),
            "line 5: the charset Klingon is not supported; convert the file to UTF-8",
        ),
        (
            HEADER.replace("UTF-8", "rot13"),
            "line 5: the charset rot13 is not supported; convert the file to UTF-8",
        ),
        (
            b"{Content-Type: charset=cp037" + 'msgid "a"'.encode("cp037"),
            "line 1: the charset cp037 is not supported; convert the file to UTF-8",
        ),
        (HEADER.encode("utf-16"), "line 1: it is UTF-16; convert the file to UTF-8"),
        (HEADER.encode() + b"# \xe9", "line 8: the line is not utf-8"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(content, problem):
    with pytest.raises(DocumentError) as caught:
        read_document(content if isinstance(content, bytes) else content.encode(), "po")
    assert str(caught.value) == problem


@pytest.mark.timeout(30)  # a quadratic time is far longer
def test_much_white_space_takes_linear_time():
    data = f'msgid "a{" " * 300_000}b"\nmsgstr ""\n'.encode()
    assert len(texts_of(read_document(data, "po"))) == 1


class Text(str):
    """A text that counts the characters that are copied when another one is added."""

    num_copied = 0

    def __add__(self, other):
        Text.num_copied += len(self)
        return Text(str(self) + other)


def test_the_lines_of_a_text_are_joined_once(monkeypatch):
    monkeypatch.setattr(po_files, "_unescaped", Text)
    monkeypatch.setattr(po_files, "LONGEST_TEXT", 100)
    data = b'msgid ""\n' + b'"a"\n' * 100 + b'msgstr ""\n'
    assert texts_of(read_document(data, "po")) == ["a" * 100]
    assert Text.num_copied < 1000
    with pytest.raises(DocumentError, match="line 102: a text has more than 100 characters"):
        read_document(data.replace(b"msgstr", b'"a"\nmsgstr'), "po")


# Texts that gettext's own check takes, by flag: what is replaced in each is between the words.
OF_FLAGS = {
    "boost-format": "%1% and %|2$d| dogs",
    "c-format": "%'d dogs, 100%% of %S, %zu, %lld, %5.2f%% and %*d",
    "csharp-format": "{0} dogs and {1,10:N2}",
    "java-format": "{0} dogs, {1,choice,0#none|1#one|1<{1}}",
    "java-printf-format": "%1$s dogs and %2$tB",
    "javascript-format": "%s dogs and %d",
    "kde-format": "%1 dogs in %2",
    "lisp-format": "~a dogs and ~,2f",
    "lua-format": "%s dogs and %d",
    "objc-format": "%1$@ dogs and %2$@",
    "object-pascal-format": "%s dogs and %d",
    "perl-brace-format": "{name} dogs and {other}",
    "perl-format": "%s dogs and %d",
    "php-format": "%1$'010d dogs and %2$s",
    "python-brace-format": "{0} dogs, {x:>10} and {x[0].y}",
    "python-format": "%(name)s dogs and %(count)5d",
    "qt-format": "%1 dogs and %L2",
    "ruby-format": "%{color} dogs and %<count>d",
    "sh-format": "$name dogs and ${place}",
    "tcl-format": "%s dogs and %d",
}


def checked_by_gettext(data, folder):
    (folder / "a.po").write_bytes(data)
    command = ["msgfmt", "-c", "--check-format", "-o", "/dev/null", "a.po"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return [line for line in found.stderr.splitlines() if "warning" not in line.lower()]


@pytest.mark.parametrize("flag", OF_FLAGS)
def test_what_the_flag_of_an_entry_means_is_kept(flag, tmp_path):
    """Its words change; what gettext's check compares stays. Without it, nothing is written."""
    text = OF_FLAGS[flag]
    data = f'{HEADER}#, fuzzy, {flag}\nmsgid "{text}"\nmsgstr ""\n'.replace("fuzzy, ", "").encode()
    document = read_document(data, "po")
    (segment,) = document.segments
    matches = Protection(segment.protect).found_in(segment.text)
    places = [0, *(place for match in matches for place in (match.begin, match.end)), len(text)]
    parts = [text[begin:end] for begin, end in itertools.pairwise(places)]
    loud = "".join(part if number % 2 else part.upper() for number, part in enumerate(parts))
    assert loud != text
    assert "DOGS" in loud
    written = document.filled([Translation(loud)])
    assert polib.pofile(written.decode())[0].msgstr == loud
    for wrong in (loud.replace(text[matches[0].begin : matches[0].end], "x", 1), f"{loud} {text}"):
        without = document.filled([Translation(wrong)])
        assert polib.pofile(without.decode())[0].msgstr == ""
        assert left_out(document) == [LeftOut(1, text, CHANGED)]
    if shutil.which("msgfmt"):
        assert checked_by_gettext(data, tmp_path) == []
        assert checked_by_gettext(written, tmp_path) == []
        broken = re.sub(rb'msgstr "[^"]+"\n$', b'msgstr "x"\n', written)
        assert checked_by_gettext(broken, tmp_path), "gettext takes no such check for this flag"


@pytest.mark.parametrize(
    ("entry", "written"),
    [
        ('msgid\n"a dog"\nmsgstr\n""\n', 'msgid\n"a dog"\nmsgstr "A DOG"\n'),
        (
            'msgid "a " "dog"  ""\n"!"\nmsgstr "" ""\n',
            'msgid "a " "dog"  ""\n"!"\nmsgstr "A DOG!"\n',
        ),
        ('domain "x"\nmsgid "a"\nmsgstr ""\n', 'domain "x"\nmsgid "a"\nmsgstr "A"\n'),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_what_gettext_reads_is_read(entry, written, line_end):
    """Polib reads none of these."""
    data, expected = ((HEADER + each).replace("\n", line_end).encode() for each in (entry, written))
    assert shouted(data, "po") == expected


@pytest.mark.parametrize("flag", [*OF_FLAGS, "go-format"])
@pytest.mark.parametrize("part", ["%" + "0" * 50_000, "%" * 50_000, "{" * 50_000, "%1$" * 20_000])
def test_what_is_kept_is_found_in_linear_time(flag, part):
    data = f'{HEADER}#, {flag}\nmsgid "a {part} b"\nmsgstr ""\n'.encode()
    started = time.monotonic()
    copied(data, "po")
    for segment in read_document(data, "po").segments:
        Protection(segment.protect).found_in(segment.text)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("plural", "expected"), [
    ("nplurals=2; plural=(n != 1)", ["ONE FILE", "%d FILES"]),
    ("nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2", ["%d FILES"] * 3),
    ("nplurals=3; plural=n==1 ? 0 : n>=2 && n<=4 ? 1 : 2", ["ONE FILE", "%d FILES", "%d FILES"]),
    ("nplurals=4; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : 3", [
        "%d FILES", "ONE FILE", "%d FILES", "%d FILES"
    ]),
    ("nplurals=1; plural=0", ["%d FILES"]),
    ("nplurals=INTEGER; plural=EXPRESSION", ["ONE FILE", "%d FILES"]),
    ("nplurals=2; plural=n%0", ["ONE FILE", "%d FILES"]),
])  # fmt: skip
def test_the_form_for_one_thing_is_that_of_the_language(plural, expected, tmp_path):
    header = HEADER.replace("nplurals=2; plural=(n != 1)", plural)
    empty = "".join(f'msgstr[{number}] ""\n' for number in range(len(expected)))
    entries = [
        f'#, c-format\nmsgid "one file"\nmsgid_plural "%d files"\n{empty}',
        f'msgid "one cat"\nmsgid_plural "{{n}} cats"\n{empty}',
        f'#, c-format\nmsgid "%d dog"\nmsgid_plural "%d dogs"\n{empty}',
    ]
    data = translated((header + "\n".join(entries)).encode(), "po")
    files, cats, dogs = polib.pofile(data.decode())
    assert [form.replace("%D", "%d") for form in files.msgstr_plural.values()] == expected
    assert ["{n}" in form for form in cats.msgstr_plural.values()] == ["%d" in e for e in expected]
    ones = [form for form in dogs.msgstr_plural.values() if form == "%d DOG"]
    assert len(ones) == (len(expected) > 1)
    if shutil.which("msgfmt"):
        (tmp_path / "a.po").write_bytes(data)
        command = ["msgfmt", "--check-format", "--output-file=/dev/null", str(tmp_path / "a.po")]
        assert "format spec" not in subprocess.run(command, capture_output=True, text=True).stderr
