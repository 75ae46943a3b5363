"""The section of a recipe on changes to the text of a corpus while training reads it."""

from typing import Annotated

from pydantic import Field

from nmt_cli.recipe.values import DataPath, Number, Section, Word

# In the order in which they are applied. The case of letters changes last: before, terms are found
# as they are written, and the translations in tags get the same case as the sentence.
KINDS = ("noise", "merge", "typos", "remove_end_punctuation", "terms", "title_case", "upper_case")
TERM_TAGS = "<t>", "</t>"
Probability = Annotated[Number, Field(ge=0, le=1)]


class Augmentation(Section):
    """Changes to the training pairs of a corpus, drawn anew in each epoch by the seed.

    Each number is the probability that a pair is changed in this way.
    """

    upper_case: Probability = 0.0
    """Both sides in capital letters."""
    title_case: Probability = 0.0
    """Each word of both sides with a capital letter at its beginning."""
    typos: Probability = 0.0
    """Misspelt words in the source: two letters swapped, or a letter inserted, left out or
    replaced; at least one word."""
    typos_per_word: Annotated[Number, Field(gt=0, le=1)] = 0.1
    """Probability that a word of such a source is misspelt."""
    noise: Probability = 0.0
    """In place of the pair, random characters, the same on both sides."""
    remove_end_punctuation: Probability = 0.0
    """Punctuation at the end left out, if both sides end with the same kind of it."""
    merge: Probability = 0.0
    """One to three of the pairs that follow in the corpus are added to the pair."""
    merge_separator: Word | None = None
    """Put between merged sentences; one of tokenizer.user_defined_symbols."""
    terms: Probability = 0.0
    """Behind each term of the glossary in the source, its translation in term_tags, if the target
    has it; without a glossary, behind one to three words that have alignments."""
    glossary: DataPath | None = None
    """The terms, in a file as translate --glossary takes it."""
    term_tags: tuple[Word, Word] = TERM_TAGS
    """Begin and end of a term's translation; two of tokenizer.user_defined_symbols."""

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each kind of change that is asked for."""
        given = {name: getattr(self, name) for name in KINDS}
        return {name: probability for name, probability in given.items() if probability > 0}

    @property
    def symbols(self) -> list[tuple[str, str]]:
        """The pieces that are added to the text, each behind the key that names it."""
        found = [("term_tags", tag) for tag in self.term_tags] if self.terms > 0 else []
        if self.merge > 0 and self.merge_separator is not None:
            found.append(("merge_separator", self.merge_separator))
        return found
