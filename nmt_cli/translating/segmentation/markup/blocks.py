"""Cuts markup into blocks of text with the inline elements in them, and what stays as it is."""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nmt_cli.files.lines import is_blank
from nmt_cli.recipe.translation_options import Markup
from nmt_cli.translating.interface.request import NO_TAG_RULES, LineError, TagRules
from nmt_cli.translating.segmentation.markup.tokens import (
    RAW_TEXT,
    Token,
    TokenKind,
    html_tokens,
    xml_tokens,
)


def _names(words: str) -> set[str]:
    return set(words.split())


VOID = _names("area base basefont br col embed frame hr img input link meta param source track wbr")
# Elements whose end tag may be missing in HTML.
OPTIONAL_END = _names(
    "body colgroup dd dt head html li optgroup option p tbody td tfoot th thead tr"
) | {"plaintext"}  # whose end tag would be text
_CELLS = {"td", "th"}
_ROWS = {"tbody", "tfoot", "thead", "tr", *_CELLS}
# By name of an element: the elements without an end tag that end where it begins.
ENDS = {
    **{"dd": {"dd", "dt"}, "dt": {"dd", "dt"}, "li": {"li"}, "p": {"p"}},
    **{"optgroup": {"optgroup", "option"}, "option": {"option"}},
    **{"tbody": _ROWS, "tfoot": _ROWS, "thead": _ROWS, "tr": {"tr", *_CELLS}},
    **{"td": _CELLS, "th": _CELLS},
}
# Elements that separate the text before from the text after.
SEPARATING = _names(
    """address article aside audio base basefont blockquote body br button canvas caption center col
    colgroup datalist dd details dialog dir div dl dt embed fieldset figcaption figure footer form
    frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html input legend li link main map menu
    meta nav noframes noscript object ol optgroup option p param pre search section select source
    summary table tbody td template tfoot th thead title tr track ul video"""
) | (RAW_TEXT - {"script", "style"})
# Elements that are part of the text in XML too, where other names mean nothing.
INLINE = _names(
    """a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark nobr q
    ruby s samp script small span strike strong style sub sup time tt u var wbr"""
)
# Elements whose content stays as it is.
KEPT = RAW_TEXT | {"code", "math", "pre", "rp", "rt", "svg"}
# So does that of elements with this class or attribute, as browsers, Google and Weglot have it.
NOT_TRANSLATED, NO_TRANSLATION = "notranslate", "data-no-translation"
INVISIBLE_ELEMENTS = {"script", "style", "wbr"}
# Elements with rules of their own: there a tag such as <g/> has no end tag. Within the second ones
# those of HTML hold again.
FOREIGN = {"math", "svg"}
OF_HTML = {"annotation-xml", "desc", "foreignobject"}
# By name of an element: those within which it ends none that is around them.
WITHIN = {name: (SEPARATING - ended) | FOREIGN | OF_HTML for name, ended in ENDS.items()}
# The end of a text that may begin a tag or a reference to a character.
BEGUN = re.compile(r"(?:</?|&[^\s<&;]*)\Z")
DEEPEST = 256  # nested elements, as in libxml2; browsers stop at 512


@dataclass(slots=True)
class Element:
    """An element: its tags as they are written, and what is between them."""

    start: Token
    end: str = ""
    children: list[Element | Token] = field(default_factory=list)
    has_text: bool = False  # to translate, in itself or an element in it
    is_separating: bool = False  # itself, or an element in it
    is_named: bool = False  # among those whose content stays as it is, by the rules of a text

    @property
    def is_kept(self) -> bool:
        """Whether its content stays as it is."""
        given = self.start.attributes
        if self.is_named or self.start.name in KEPT or NO_TRANSLATION in given:
            return True
        is_no = (given.get("translate") or "").strip().lower() == "no"
        return is_no or NOT_TRANSLATED in (given.get("class") or "").split()

    def raw(self) -> str:
        """Return its source, with the tags that were added."""
        return "".join((self.start.raw, *map(raw_of, self.children), self.end))


@dataclass(eq=False)
class Inline:
    """An inline element, or what else has a place in a text, such as a comment or an image."""

    raw: str  # its start tag, or all of it if it holds no text
    begin: int  # in the text of its block
    parent: Inline | None
    end: int = 0
    end_tag: str = ""
    children: list[Inline] = field(default_factory=list)
    is_visible: bool = False  # on a page; only set for what holds no text
    has_space: bool = False  # it holds no text, but the white space between two words


class Block:
    """A text with inline elements, whose source is ``raw``."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.raw_of: dict[int, tuple[str, int]] = {}  # references: their source and their end
        self._references: dict[str, str] = {}
        self._plain = set[str]()
        self.spaces_inside = set[int]()  # the places of spaces that are in elements without words
        self.root = Inline("", 0, None)
        self._texts = list[str]()
        self._length = 0

    @property
    def text(self) -> str:
        """The text without tags, as the model gets it."""
        return "".join(self._texts)

    def written(self, text: str) -> str:
        """Return ``text`` as markup.

        A character is written as a reference such as ``&euro;`` if the block has it only so.
        """
        return text.translate(self._escapes)

    @cached_property
    def _escapes(self) -> dict[int, str]:
        references = {
            ord(character): raw
            for character, raw in self._references.items()
            if len(character) == 1 and character not in self._plain and raw.endswith(";")
        }
        escaped = {ord(character): html.escape(character, quote=False) for character in "&<>"}
        return {**escaped, **references}

    def add(self, node: Element | Token, parent: Inline) -> None:
        """Add what follows, which is inside of ``parent``."""
        if isinstance(node, Token) and node.kind is TokenKind.TEXT:
            for raw, meaning in node.parts:
                if raw and not meaning:  # such as &#1;, which pages do not show
                    parent.children.append(Inline(raw, self._length, parent, self._length))
                elif raw != meaning:
                    self.raw_of[self._length] = raw, self._length + len(meaning)
                    self._references.setdefault(meaning, raw)
                else:
                    self._plain.update(raw)
                self._texts.append(meaning)
                self._length += len(meaning)
        elif isinstance(node, Token) or not node.has_text:
            inline = Inline(raw_of(node), self._length, parent, is_visible=_is_visible(node))
            if self._texts and not self._texts[-1][-1:].isspace() and _has_space(node):
                inline.has_space = True
                self.spaces_inside.add(self._length)
                self._texts.append(" ")
                self._length += 1
            inline.end = self._length
            parent.children.append(inline)
        else:
            inline = Inline(node.start.raw, self._length, parent, end_tag=node.end)
            parent.children.append(inline)
            for child in node.children:
                self.add(child, inline)
            inline.end = self._length


def blocks_of(source: str, markup: Markup, tags: TagRules = NO_TAG_RULES) -> list[str | Block]:
    """Return the blocks of ``source``, and what is between them, as it is written.

    Broken nesting of HTML is repaired: end tags of nothing are left out, and missing ones are added
    where the element around them ends. A tag or a comment without an end stays as it is, with all
    behind it: browsers show nothing of that. Raises LineError for XML that is not well-formed.
    """
    return list(_parts(tree_of(source, markup, tags).children))


def tree_of(source: str, markup: Markup, tags: TagRules = NO_TAG_RULES) -> Element:
    """Return an element without tags that holds what is in ``source``; see ``blocks_of``."""
    root = Element(Token(TokenKind.OTHER, ""))
    _fill(root, html_tokens(source) if markup == "html" else xml_tokens(source), markup, tags)
    return root


def _fill(root: Element, tokens: Sequence[Token], markup: Markup, tags: TagRules) -> None:
    """Put ``tokens`` into the elements that they are in."""
    stack, with_end = [root], _with_end(tokens) if markup == "html" else set()
    rest = tokens[-1:] if tokens and tokens[-1].kind is TokenKind.REST else ()
    for place, token in enumerate(tokens[: len(tokens) - len(rest)]):
        if token.kind is TokenKind.START or token.kind is TokenKind.EMPTY:
            element = Element(token, is_named=token.name in tags.kept)
            is_void = token.kind is TokenKind.EMPTY
            if markup == "html":
                _end_before(token.name, stack)
                is_start = place in with_end and not _is_foreign(token.name, stack)
                is_void = token.name in VOID or (is_void and not is_start)
            stack[-1].children.append(element)
            if not is_void:
                stack.append(element)
                if len(stack) - 1 > DEEPEST:  # the first is the whole fragment
                    raise LineError(f"its elements are nested more than {DEEPEST} deep")
        elif token.kind is TokenKind.END:
            _end_by(token, stack)
        else:
            if markup == "html" and token.kind is TokenKind.TEXT:
                _end_text(stack[-1].children)
            stack[-1].children.append(token)
    if any(element.start.name not in OPTIONAL_END for element in stack[1:]):
        _end_text(stack[-1].children)
    while len(stack) > 1:
        _end_missing(stack.pop())
    root.children += rest  # an end tag would be a part of it
    _separate(root, markup, tags, is_inside=False)


def _is_foreign(name: str, stack: Sequence[Element]) -> bool:
    """Return whether an element ``name`` that begins here follows other rules than HTML's."""
    around = (element.start.name for element in reversed(stack))
    nearest = next((each for each in around if each in FOREIGN or each in OF_HTML), "")
    return name in FOREIGN or nearest in FOREIGN


def _with_end(tokens: Sequence[Token]) -> set[int]:
    """Return the places of tags such as ``<div/>`` that have an end tag, as browsers ignore the /.

    An end tag is that of a start tag without a / if there is one. A tag without one is kept as it
    is.
    """
    num_starts, empty = Counter[str](), defaultdict[str, list[int]](list)
    places = set[int]()
    for place, token in enumerate(tokens):
        if token.kind is TokenKind.START:
            num_starts[token.name] += 1
        elif token.kind is TokenKind.EMPTY:
            empty[token.name].append(place)
        elif token.kind is TokenKind.END and num_starts[token.name]:
            num_starts[token.name] -= 1
        elif token.kind is TokenKind.END and empty[token.name]:
            places.add(empty[token.name].pop())
    return places


def _end_before(name: str, stack: list[Element]) -> None:
    """End the elements without an end tag that end where an element ``name`` begins."""
    ended = ENDS.get(name)
    if ended is None:
        return
    place, others = len(stack) - 1, WITHIN[name]
    while place > 0 and stack[place].start.name not in others:
        if stack[place].start.name in ended:
            while len(stack) > place:
                _end_missing(stack.pop())
        place -= 1


def _end_by(token: Token, stack: list[Element]) -> None:
    """End the innermost element of that name, and those in it; leave out an end tag of nothing."""
    if any(element.start.name == token.name for element in reversed(stack)):
        while stack[-1].start.name != token.name:
            _end_missing(stack.pop())
        stack.pop().end = token.raw


def _end_text(nodes: list[Element | Token]) -> None:
    """Write the last node, if it is a text, so that it means the same before any other text or tag.

    Behind it, a tag that browsers ignore was left out, or a missing end tag is added.
    """
    if nodes and isinstance(last := nodes[-1], Token) and last.kind is TokenKind.TEXT:
        raw = BEGUN.sub(lambda begun: html.escape(html.unescape(begun[0]), quote=False), last.raw)
        nodes[-1] = last._replace(raw=raw)


def _end_missing(element: Element) -> None:
    if element.start.name not in OPTIONAL_END:
        element.end = f"</{element.start.name}>"


def _separate(element: Element, markup: Markup, tags: TagRules, *, is_inside: bool) -> bool:
    """Decide which elements in ``element`` separate texts; return whether any does.

    In XML, elements are inside of a text if text is beside them; their names mean little.
    """
    has_text = any(isinstance(child, Token) and _has_text(child) for child in element.children)
    any_separates = False
    for child in element.children:
        if isinstance(child, Element):
            name, is_mixed = child.start.name, is_inside or has_text
            separates = name in SEPARATING
            if markup == "xml":
                separates = separates or not (is_mixed or name in INLINE)
            separates = separates and tags.detects and name not in tags.inline
            separates = separates or name in tags.separating
            within = _separate(child, markup, tags, is_inside=not separates and is_mixed)
            child.is_separating = separates or (within and not child.is_kept)
            any_separates = any_separates or child.is_separating
    element.has_text = not element.is_kept and any(map(_has_text, element.children))
    return any_separates


def _parts(children: Sequence[Element | Token]) -> Iterator[str | Block]:
    """Yield the blocks among ``children``, and the source between them."""
    run = list[Element | Token]()
    for child in children:
        if isinstance(child, Token) and child.kind is TokenKind.REST:
            yield from _run(run)
            run = [child]
        elif isinstance(child, Element) and child.is_separating:
            yield from _run(run)
            run = []
            if child.is_kept:
                yield child.raw()
            else:
                yield child.start.raw
                yield from _parts(child.children)
                yield child.end
        else:
            run.append(child)
    yield from _run(run)


def _run(run: Sequence[Element | Token]) -> Iterator[str | Block]:
    if not any(map(_has_text, run)):
        yield from map(raw_of, run)
        return
    block = Block("".join(map(raw_of, run)))
    for node in run:
        block.add(node, block.root)
    block.root.end = len(block.text)
    yield block


def _has_text(node: Element | Token) -> bool:
    """Return whether there is text to translate in ``node``."""
    if isinstance(node, Element):
        return node.has_text
    return not all(is_blank(meaning) for _, meaning in node.parts)


def _has_space(node: Element | Token) -> bool:
    """Return whether ``node``, in which there is no text, has white space of the text around it."""
    if isinstance(node, Token):
        return node.kind is TokenKind.TEXT
    return not node.is_kept and any(map(_has_space, node.children))


def _is_visible(node: Element | Token) -> bool:
    """Return whether ``node``, in which there is no text, has a place on a page."""
    if isinstance(node, Token):
        return node.raw.startswith(("&", "<![CDATA["))
    if node.is_kept or node.start.kind is TokenKind.EMPTY or node.start.name in VOID:
        return node.start.name not in INVISIBLE_ELEMENTS
    return any(map(_is_visible, node.children))


def raw_of(node: Element | Token) -> str:
    """Return how ``node`` is written."""
    return node.raw() if isinstance(node, Element) else node.raw
