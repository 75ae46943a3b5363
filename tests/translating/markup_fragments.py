"""Random fragments of HTML and XML, translations without a model, and what reads the results."""

import html
import re
from collections import Counter
from html.parser import HTMLParser

from nmt_cli.translating.segmentation.markup.blocks import OPTIONAL_END, VOID
from nmt_cli.translating.segmentation.markup.tokens import RAW_TEXT
from nmt_cli.translating.segmentation.segments import Output, Span

WORD = re.compile(r"\w+|[^\w\s]")
WORDS = ["Ant", "bee", "cat.", "dog,", "naïve", "漢字", "مرحبا", "«eel»", "5 %", "😀"]
REFERENCES = {
    "html": ["&amp;", "&lt;b&gt;", "&nbsp;", "&eacute;", "&#233;", "&#x41;", "&copy", "&", "&x y"],
    "xml": ["&amp;", "&lt;b&gt;", "&#160;", "&#233;", "&#x41;", "&quot;"],
}
INLINE = ["b", "i", "a", "span", "em", "strong", "u", "sub", "small"]
BLOCKS = ["div", "section", "h1", "blockquote", "nav", "figure"]
ATTRIBUTES = ["", "", ' class="x y"', " id='a\"b'", ' href="?a=1&amp;b=2"', ' title="5 > 4"']
KEPT = {
    "html": [
        *("<br>", "<img src=a.png alt='x'>", "<!-- c <b> -->", "<wbr>", "<hr/>", "<input name=a>"),
        *("<code>f(<i>x</i>)</code>", "<pre>  a\n b</pre>", "<svg><text>t</text></svg>"),
        *("<script>if (a < b) '</b>'</script>", "<style>b > i {}</style>", "<title>a</title>"),
        *("<textarea>&lt;<b></textarea>", "<span translate='no'>Keep <b>me</b></span>"),
        *("<i class='notranslate'>Keep</i>", "<b data-no-translation>Keep</b>"),
        *("<div translate=no>Keep</div>", "<?php x ?>", "<a><img></a>", "<i> </i>", "<b></b>"),
    ],
    "xml": [
        *("<x id='1'/>", "<!-- c <b> -->", "<?pi a?>", "<![CDATA[a <b> & c]]>", "<b></b>"),
        *("<g translate='no'>Keep <b>me</b></g>", "<code>f(x)</code>", "<pre> a\n</pre>"),
        "<i> </i>",
    ],
}
HOSTILE = ["<", ">", "&", "</", "<!", "<?", "]]>", "<b", "</b", "<b a='", '"', "</nobody>"]
HOSTILE += ["</>", "<!--", "-->", "<script>", "<textarea>", "</p>", "<br/>", "<i/>", "\0", "&#"]


# A comment in a script, which hides another one: html.parser ends the script at the first end tag.
SCRIPT_IN_COMMENT = re.compile(r"<script.*<!--.*<script", re.DOTALL | re.IGNORECASE)


def crowded(rng, markup, depth=0):
    """Return a well-formed fragment with more elements without words than words."""
    parts = list[str]()
    for _ in range(rng.randrange(1, 7)):
        kind = rng.random()
        if kind < 0.2:
            parts.append(rng.choice(WORDS))
        elif kind < 0.3:
            parts.append(rng.choice([" ", "  ", "\n", *REFERENCES[markup]]))
        elif kind < 0.85 or depth > 3:
            parts.append(rng.choice(KEPT[markup]))
        else:
            name = rng.choice(INLINE)
            parts.append(f"<{name}>{crowded(rng, markup, depth + 1)}</{name}>")
    return "".join(parts)


def fragment(rng, markup, depth=0):
    """Return a fragment that is well-formed."""
    parts = list[str]()
    for _ in range(rng.randrange(1, 6)):
        kind = rng.random()
        if kind < 0.5 or depth > 4:
            parts.append(rng.choice(WORDS) + rng.choice(["", " ", "  ", "\n", "\t"]))
        elif kind < 0.6:
            parts.append(rng.choice(REFERENCES[markup]) + rng.choice(["", " "]))
        elif kind < 0.7:
            parts.append(rng.choice(KEPT[markup]))
        else:
            is_block = kind > 0.9 and depth < 3
            name = rng.choice(BLOCKS if is_block else INLINE)
            attributes = rng.choice(ATTRIBUTES).replace(">", ">" if markup == "html" else "&gt;")
            parts.append(f"<{name}{attributes}>{fragment(rng, markup, depth + 1)}</{name}>")
    return "".join(parts)


def broken(rng, source):
    """Return ``source`` without some of its parts, with some twice, and with hostile ones."""
    parts = re.split(r"(<[^>]*>)", source)
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(parts))
        parts[place : place + 1] = rng.choice([[], [parts[place]] * 2, [rng.choice(HOSTILE)]])
        parts = parts or [""]
    return "".join(parts)


def copied(texts, unit=re.compile(r"\S")):
    """Return each text as its own translation, character for character or ``unit`` for unit."""
    return [
        Output(text, [Span(*match.span(), *match.span()) for match in unit.finditer(text)])
        for text in texts
    ]


def normalized(source):
    """Return markup without references and white space, whose places may change."""
    return "".join(html.unescape(source).replace("\0", "\ufffd").split())


def scrambled(rng, texts):
    """Return translations with words in another order, some left out and some added."""
    outputs = []
    for text in texts:
        words = list(WORD.finditer(text))
        chosen = [each for each in words if rng.random() < 0.8]
        rng.shuffle(chosen)
        places = [match.span() for match in words] or [(0, len(text))]
        written, spans = "", []
        for match in chosen:
            begin = len(written)
            written += rng.choice([match[0].upper(), "<&>", "</b>", f"{match[0]}x"])
            source = rng.choice([match.span(), rng.choice(places)])
            attending = tuple(place for place, _ in rng.choices(places, k=rng.randrange(3)))
            spans.append(Span(begin, len(written), source[0], source[1], attending))
            written += rng.choice(["", " ", " "])
        outputs.append(Output(written, spans if rng.random() < 0.95 else []))
    return outputs


class Tags(HTMLParser):
    """Counts the start tags of HTML, and notes an end tag that ends nothing, or is missing."""

    CDATA_CONTENT_ELEMENTS = tuple(RAW_TEXT)  # type: ignore[misc]

    def __init__(self, source):
        super().__init__()
        self.counts, self.open, self.faults = Counter[str](), list[str](), list[str]()
        self._raw_text: str | None = None
        # Of tags such as <i/>, which browsers end only where an end tag follows.
        self.may_be_void, self._num_ended = list[bool](), Counter[str]()
        self.feed(source.replace("\0", "\ufffd"))  # as browsers do, also in names
        self.close()
        self._end_those_after(0)

    def handle_starttag(self, tag, attrs):
        if self._raw_text is not None:
            return
        self.counts[self.get_starttag_text() or ""] += 1
        if tag not in VOID:
            self.open.append(tag)
            self.may_be_void.append(False)
        self._raw_text = tag if tag in RAW_TEXT else None

    def handle_startendtag(self, tag, attrs):
        if self._raw_text is not None:
            return
        self.counts[self.get_starttag_text() or ""] += 1
        if tag not in VOID:
            self.open.append(tag)
            self.may_be_void.append(True)

    def handle_endtag(self, tag):
        if self._raw_text not in {None, tag}:
            return
        self._raw_text = None
        if tag not in self.open:
            self.faults.append(f"</{tag}>")
            return
        last = len(self.open) - 1 - self.open[::-1].index(tag)
        self._end_those_after(last + 1)
        self._num_ended[self.open.pop()] += self.may_be_void[last]
        self.may_be_void.pop()

    def _end_those_after(self, number):
        for tag, may_be_void in zip(self.open[number:], self.may_be_void[number:], strict=True):
            if self._num_ended[tag] and not may_be_void:  # the end tag of <i/> was that of <i>
                self._num_ended[tag] -= 1
            elif not may_be_void and tag not in OPTIONAL_END:
                self.faults.append(f"<{tag}>")
        del self.open[number:], self.may_be_void[number:]
