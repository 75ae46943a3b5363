"""Terms whose translations are added to a line in tags, for a model that was trained with these."""

from __future__ import annotations

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, tag_pieces
from nmt_cli.recipe.sections.corpora import TERM_TAGS
from nmt_cli.translating.interface.request import ONLY_TEXT, Request


class SoftGlossary:
    """Puts the first form of the translation of each term behind it, between two tags."""

    def __init__(self, glossary: Glossary, tags: tuple[str, str] = TERM_TAGS) -> None:
        self._glossary, self._tags = glossary, tags
        added = [*tags, *(term.targets[0] for term in glossary.terms.values())]
        self.characters = frozenset("".join(added))  # of what is put behind terms

    def __str__(self) -> str:
        """Return the tags and a checksum of the terms, which show whether they have changed."""
        return f"{' '.join(self._tags)} {self._glossary}"

    def refuse_unknown_tags(self, tokenizer: Tokenizer) -> None:
        """Raise UserError if a tag is not one piece of the source."""
        for tag in self._tags:
            tag_pieces(tag, tokenizer, "--soft-glossary: the tag", "--term-tags")

    def marked(self, request: Request) -> Request:
        """Return a line with the translations of its terms, or with an error if it asks for markup,
        alignments or protected text, which need its words as they are."""
        if (request.markup not in {None, "none"}) or request.alignments or request.protect:
            return request._replace(error=ONLY_TEXT)
        marked = self._glossary.marked(request.text, self._tags, lambda term: term.targets[0])
        if len(marked.words) == len(marked.places):  # there is no term: the text stays as it is
            return request
        return request._replace(text=" ".join(marked.words))
