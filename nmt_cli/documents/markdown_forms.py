"""A parser of Markdown with forms beyond CommonMark, which stay, and the text in them.

The patterns take linear time: what they look for ends where it begins again, or has a bound.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from nmt_cli.documents.document import DocumentError
from nmt_cli.translating.segmentation.markup.blocks import KEPT as KEPT_ELEMENTS

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

# Between "---" or "+++"; or lines of Pandoc with the title, authors and the date.
FRONT_MATTER = re.compile(
    r"(?ms)\A(?:(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)[ \t]*\r?$"
    r"|%[ \t][^\n]*(?:\n[% \t][^\n]*)*)"
)
_BRACES = r"\{[^{}]*\}"
for _ in range(3):  # braces within braces
    _BRACES = rf"\{{(?:[^{{}}]|{_BRACES})*\}}"
_ATTRIBUTES = rf"""(?:[^<>{{}}"']|"[^"<]*"|'[^'<]*'|{_BRACES})*"""
# Names of components have small letters, too; those of elements may be in capitals.
COMPONENT = rf"<(?:/?[A-Z]\w{{0,60}}?[a-z.][\w.]{{0,60}}(?=[\s/>]){_ATTRIBUTES}|/?)>"
# An address with a template in it, which may have spaces
_ADDRESS = r"\((?=[^()\s]*\{[{%])(?:[^(){}]|\{\{[^{}]*\}\}|\{%[^{}]*%\})*\)"
_ROLE = r"\{[\w:.+-]{1,60}\}"
_SIGN = r"(?:[\^_=+]|\s[<>]\s|\\[A-Za-z])"  # of a formula
_MATH = rf"\\%s(?=(?:[^\\]|\\[^%s])*?{_SIGN}|\w{{1,2}}\\%s)(?:[^\\]|\\[^%s])*\\%s"
# In a text. A group is the text in a form, which is translated.
_INLINE = (
    # Variables; formulas, as Pandoc and GitHub have them: "$5 and $6" and "a$b and c$" are none.
    r"\$\{[A-Za-z_][\w.-]+\}(?!\$)|\$\$.+?\$\$|(?<![A-Za-z0-9])\$(?![\s$])[^$\\]*(?:\\.[^$\\]*)*(?<!\s)\$(?!\d)",
    _MATH % (r"\(", "()", r"\)", "()", r"\)"),
    _MATH % (r"\[", r"\[\]", r"\]", r"\[\]", r"\]"),
    rf"(?<![\w:\\])\\[A-Za-z]+\*?(?:\[[^\[\]]*\]|{_BRACES})*",  # TeX
    # Footnotes; what wikis embed; a page, perhaps with a text.
    r"\[\^[^\[\]\s]+\]|\^\[([^\[\]]+)\]"
    r"|!\[\[[^\[\]]*\]\]|\[\[[^\[\]|]+\|([^\[\]|]+)\]\]|\[\[[^\[\]|]+\]\](?![(\[])",
    # Comments, names of blocks, and what Microsoft's documentation includes
    r"\[(?:TOC|toc)\]|%%[^%]*%%|(?<!\S)\^[A-Za-z0-9-]+\s*\Z|\[![A-Za-z](?:[^\[\]]|\[[^\[\]]*\])*\]",
    # Citations, names of people
    r"\[[^\[\]@]*(?<![\w.])@\w[^\[\]]*\](?![(\[])|(?<![\w.])@\w+(?:[:./-]\w+)*",
    rf"\[([^\[\]]+)\](?:\{{[^{{}}]+\}}|{_ADDRESS})|!\[[^\[\]]*\]{_ADDRESS}",
    # Roles, directives, emoji, tags
    rf"(?:{_ROLE}|(?<!\w):[\w:.+-]{{1,60}}:)`(?:([^`<>]*[^`<>\s])\s*<[^`<>]+>`|[^`]+`)",
    r"(?<![\w:]):[a-z][\w-]{0,60}\[([^\[\]]+)\](?:\{[^{}]*\})?"
    r"|(?<!\w):[a-z][\w+-]{0,60}:(?!\w)|(?<![\w&#/])#\w[\w/-]*",
    # Templates; what XML excludes
    r"\{\{(?:(?!\{\{).)*?\}\}|\{%(?:(?!\{%).)*?%\}|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]",
    r"\{(?:==|\+\+|--)((?:(?![=+-]{2}\})[^{}])+)(?:==|\+\+|--)\}",  # changes
    # Attributes, and expressions of MDX; "{some words}" are text.
    r"\{(?:\s*[^\w\s{}][^{}]*|\s*[^\s{}]+\s*|[^{}=|]*[=|][^{}]*)\}",
    rf"(?=\{{[^{{}}]*\{{){_BRACES}",
    r'==(?![\s=])([^=]+)(?<!\s)==(?!=)|(?<!\w)\+\+[\w"][\w"+ -]{0,60}\+\+(?!\w)',  # keys
    # H~2~O, x^2^; addresses
    rf"[^\W_]+(?:~[^~\s]{{1,60}}~(?!~)|\^[^\^\s]{{1,60}}\^|{_ROLE}`[^`]+`)\w*",
    r"https?://[^\s<>\[\]`|]*[^\s<>\[\]`|.,;:!?)*_]"
    r"|<[A-Za-z][\w.+-]{1,31}:[^\s<>]*>|<[\w.+-]+@[\w.-]+>",
    *(rf"<{each}\b(?:(?!</?{each}\b).)*</{each}>" for each in sorted(KEPT_ELEMENTS)),
    rf"</?[A-Za-z][\w.-]{{0,60}}(?=[\s/>]){_ATTRIBUTES}>|</?>",
)
INLINE = re.compile("|".join(_INLINE), re.DOTALL)
# Where one may begin, and what CommonMark has.
BEGIN = re.compile(r"[^\w\s]|[_\n\x0b\x0c\x1c-\x1f]|https?://|\b[^\W_]+(?=[~^{][^\s~^])")
_REST = r"(?:.*\n){0,100}?.*?"  # the time to look for an end is quadratic without a bound
_COLUMNS = r"[ \t]*-{2,}(?:[ \t]+-{2,})+[ \t]*\n"
# Lines that stay. Those of a table have text.
_LINES = (
    rf"\$\$(?!.*\$\$[ \t]*[^\s({{]){_REST}\$\$"
    r"(?:[ \t]*(?:\([\w:.-]+\)|\{[^{}\n]*\}))?[ \t]*$",
    rf"%%(?!.*%%.*\S){_REST}%%[ \t]*$|\([\w:.-]+\)=[ \t]*$|\+\+\+.*$|%[ \t].*$",
    rf"\\\[[ \t]*\n{_REST}\\\][ \t]*$",
    rf"\\begin\{{(?P<environment>[\w*]+)\}}{_REST}\\end\{{(?P=environment)\}}[ \t]*$",
    rf"--8<--[ \t]*\n{_REST}--8<--[ \t]*$|;*--8<--.*$",
    rf"\{{%-?[ \t]*(?P<tag>highlight|comment)\b{_REST}\{{%-?[ \t]*end(?P=tag)\b.*$",
    rf"\{{\{{[<%][ \t]*(?P<code>highlight|code[\w-]*|mermaid)\b{_REST}"
    r"\{\{[<%][ \t]*/(?P=code)\b.*$",
    r"\{(?:[.#:]|[\w-]+=)[^{}\n]*\}[ \t]*$",  # attributes of the block before or below
    # Templates; VitePress; below the head of a table
    r"\{%.*%\}[ \t]*$|\{\{[<%].*[%>]\}\}[ \t]*$|<<<.*$|\|?(?:[ \t]*:?-+:?[ \t]*\|)+[ \t:-]*$",
    # MDX
    r"(?:export[ \t].*[{(\[]|import[ \t].*\{)[ \t]*\n(?:.*\n){0,300}?[\])}].*$"
    r"|import[ \t](?:.*[ \t]from[ \t]*)?[\"'].*$"
    r"|export[ \t]+(?:\*|\{|(?:async|class|const|default|function|let|var)\b).*$",
    rf"(?P<component>{COMPONENT}[ \t]*)+$",
    # Tables of Pandoc, whose columns are places in lines
    r"(?P<table>\+(?:[-=:]+\+)+[ \t]*\n(?:[ \t]*[+|].*(?:\n|$))+"
    rf"|-{{5,}}[ \t]*\n(?:.+\n){{1,9}}?{_COLUMNS}(?:.*\n){{0,300}}?-{{5,}}[ \t]*$"
    rf"|(?:[ \t]*\S.*\n)?{_COLUMNS}(?:[ \t]*\S.*(?:\n|$))+)",
)
LINES = re.compile("|".join(_LINES), re.M)
# The first lines of boxes: what they have is indented, or before a fence, or before another line.
_DIRECTIVES = (
    r"admonition|attention|card|caution|danger|deprecated|dropdown|error|grid[\w-]*|hint|important"
    "|margin|note|seealso|sidebar|tab-item|tab-set|tip|topic|versionadded|versionchanged|warning"
)
OPENING = re.compile(
    r'(?m)(?P<indented>(?:!!!|\?\?\?\+?) [\w \t-]*|===[+!]? )(?:"(?P<quoted>.+)")?[ \t]*$'
    r"|(?::{2,}[ \t]*(?:\{[^{}\n]*\}|[\w-]*)|\[![\w-]+(?:\|[^\[\]\n]*)?\][+-]?"
    rf"|(?P<fence>`{{3,}}|~{{3,}})\{{(?:{_DIRECTIVES})\}})[ \t]*"
    r"(?:\[(?P<bracketed>.+)\](?:\{.*\})?|(?P<title>.*))$(?:\n[ \t]*:[\w-]+:.*$)*"
)
# Marks of footnotes and definitions; what is indented below belongs to them.
WITH_INDENTED = re.compile(r"\[\^[^\]\s]+\]:[ \t]*|:[ \t]+")
MOST_TOKENS = 1 << 20  # of a document with tables; a short one may have cells without number
LABEL = "\0"  # around the label of a link without one, whose text may still be the same


def parser_of_forms() -> MarkdownIt:
    """Return a parser that notes in ``meta`` of each inline token where it begins and ends."""
    from markdown_it import MarkdownIt  # takes 0.1 s, and other documents do not need it

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # The text of blocks is parsed here. Joined tokens would have no place.
    parser.disable(["inline", "text_join", "fragments_join", "autolink"])
    rules = parser.inline.ruler
    for name, rule in zip(rules.get_active_rules(), rules.getRules(""), strict=True):
        rules.at(name, _placing(name, rule))
    parser.inline.ruler.at("text", _text)
    parser.inline.ruler.before("text", "form", _form)
    parser.block.ruler.at("table", _limited_table, {"alt": ["paragraph", "reference"]})
    for name, form in (("lines", _lines), ("box", _box), ("indented", _indented)):
        others = ["paragraph", "reference", "blockquote", "list"]  # which these may end
        parser.block.ruler.before("table", name, form, {"alt": others})
    return parser


def _limited_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table. Raises DocumentError if the document has too many cells by now.

    Rows have as many cells as the head of their table, also those that are not written.
    """
    from markdown_it.rules_block import table

    found = table(state, start, end, silent)
    if found and len(state.tokens) > MOST_TOKENS:
        raise DocumentError("its tables have too many cells; divide it")
    return found


def _text(state: StateInline, silent: bool) -> bool:
    """Parse the text before a character that may begin something else."""
    found = BEGIN.search(state.src, state.pos, state.posMax)
    begin, state.pos = state.pos, found.start() if found else state.posMax
    if not silent:
        state.pending += state.src[begin : state.pos]
    return state.pos > begin


def _form(state: StateInline, silent: bool) -> bool:
    """Parse a form in a text, and the text in it."""
    found = INLINE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    (begin, end), last = found.span(found.lastindex or 0), state.posMax
    if not silent and found.lastindex is None:
        state.push("form", "", 0).meta["place"] = begin, end
    elif not silent:
        state.push("form_open", "", 1).meta["place"] = found.start(), begin
        state.pos, state.posMax = begin, end
        state.md.inline.tokenize(state)
        state.posMax = last
        state.push("form_close", "", -1).meta["place"] = end, found.end()
    state.pos = found.end()
    return True


def _match(pattern: re.Pattern[str], state: StateBlock, start: int) -> tuple[Any, int]:
    """Return what begins a line, and the number of the line behind it; None if it is code."""
    begin = state.bMarks[start] + state.tShift[start]
    found = None if state.is_code_block(start) else pattern.match(state.src, begin)
    end = begin + len(found[0].rstrip()) if found else begin
    return found, bisect_left(state.eMarks, end) + 1


def _lines(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse lines that stay."""
    found, last = _match(LINES, state, start)
    if found is None or last > end:
        return False
    if not silent:
        state.line = last
        state.env["is_mdx"] |= found["component"] is not None
        if found["table"]:
            state.env["left"].append((start, "a table of Pandoc"))
    return True


def _box(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse the first lines of a box, which may have a title, and what is in it."""
    found, first = _match(OPENING, state, start)
    last, after, indent = first, first, state.blkIndent
    if found and found["indented"]:
        indent += 4
        while last < end and (state.isEmpty(last) or state.sCount[last] >= indent):
            last += 1
        after = last
    elif found and (fence := found["fence"]):
        closing = re.compile(rf"{fence}{fence[0]}*[ \t]*$", re.M)
        last = next((n for n in range(first, end) if _match(closing, state, n)[0]), end)
        after = last + 1
    if found is None or after > end:
        return False
    if not silent:
        state.push("box", "", 1)
        if text := found["quoted"] or found["bracketed"] or found["title"]:
            title = state.push("inline", "", 0)
            title.content, title.map, title.children = text, [start, start + 1], []
        outside = state.blkIndent, state.lineMax
        state.blkIndent, state.lineMax = indent, last
        state.md.block.tokenize(state, first, last)
        state.blkIndent, state.lineMax = outside
        state.line = after
        state.push("box", "", -1)
    return True


def _indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse the mark of a footnote or a definition, and its text, which may be indented below."""
    found, _ = _match(WITH_INDENTED, state, start)
    if found is None or silent:
        return found is not None
    state.blkIndent += 4
    state.bMarks[start], state.tShift[start] = found.end(), 0
    state.sCount[start] = state.blkIndent
    state.push("box", "", 1)
    state.md.block.tokenize(state, start, end)
    state.push("box", "", -1)
    state.blkIndent -= 4
    return True


def _placing(name: str, rule: Any) -> Any:
    """Return ``rule``, which then notes the places of the tokens that it adds."""

    def placing(state: StateInline, silent: bool) -> bool:
        begin, count = state.pos, len(state.tokens)
        is_link = name == "link" and not silent and state.src[begin] == "["
        label = state.md.helpers.parseLinkLabel(state, begin, True) if is_link else begin
        found = rule(state, silent)
        added, end = [] if silent or not found else state.tokens[count:], state.pos
        own = [token for token in added if token.type != "text"]
        if name in {"emphasis", "strikethrough"}:
            # Each mark is a token, and a token of text may be before it.
            place = end
            for token in reversed(added):
                if place > begin:
                    token.meta["place"] = place - len(token.content), place
                    place -= len(token.content)
        elif len(own) > 1:  # a link: its begin, what is in it, its end
            own[0].meta["place"], own[-1].meta["place"] = (begin, begin + 1), (label, end)
            if (close := state.src[label:end]) in {"]", "][]"}:  # the text is also the label
                own[-1].meta["code"] = f"]{LABEL}{state.src[begin:label]}]{LABEL}{close[1:]}"
        elif own:
            own[0].meta["place"] = begin, end
        return found

    return placing
