"""Translators' files that are written here, as translate-toolkit reads them."""

from io import BytesIO

import pytest

from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.translation import Translation
from tests.documents import test_documents_of_po as po
from tests.documents import test_documents_of_tmx as tmx
from tests.documents import test_documents_of_xliff as xliff

pytestmark = pytest.mark.slow
FILES = {
    "po": po.HEADER + "\n".join(entry for entry, _ in po.ENTRIES),
    "xlf": xliff.document_1([unit for unit, _ in xliff.UNITS_1]).decode(),
    "xliff": xliff.document_2([unit for unit, _ in xliff.UNITS_2]).decode(),
    "tmx": tmx.HEAD + "".join(unit for unit, _ in tmx.UNITS) + tmx.TAIL,
}


def units_of(data, ending):
    pytest.importorskip("translate")
    from translate.storage import po, tmx, xliff, xliff2

    if ending == "po":
        found = po.pofile.parsestring(data).units
    elif ending == "tmx":
        found = tmx.tmxfile(BytesIO(data), sourcelanguage="en", targetlanguage="de").units
    else:
        kind = xliff.Xliff1File if ending == "xlf" else xliff2.Xliff2File
        found = kind.parsestring(data).units
    return [(str(unit.source or ""), str(unit.target or "")) for unit in found]


@pytest.mark.parametrize("ending", FILES)
def test_translate_toolkit_reads_what_is_written(ending):
    form = {"xlf": "xliff"}.get(ending, ending)
    data = FILES[ending].encode()
    document = read_document(data, form, languages=("en", "de"))
    filled = document.filled([Translation(segment.text) for segment in document.segments])
    before, after = units_of(data, ending), units_of(filled, ending)
    assert [source for source, _ in after] == [source for source, _ in before]
    translated = [(source, target) for source, target in after if source and source == target]
    assert translated
    assert len(before) >= 2
