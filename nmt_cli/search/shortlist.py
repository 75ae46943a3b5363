"""The tokens that may follow the hypotheses of a sentence, where a lexicon decides that."""

from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.search.rules.phrases import FORCED_PREFIX, REQUIRED
from nmt_cli.search.sentences import SearchSettings, Sentence, Shortlist


class Shortlists:
    """Makes the shortlist of each sentence. Threads may share it."""

    def __init__(self, lexicon: Lexicon, settings: SearchSettings, *, is_shared: bool) -> None:
        """``is_shared`` is whether source and target have one vocabulary."""
        self._lexicon, self._settings, self._is_shared = lexicon, settings, is_shared

    def added_to(self, sentence: Sentence) -> Sentence:
        """Return ``sentence`` with its shortlist.

        Beside what the lexicon has for its tokens, it permits these tokens, which may be copied,
        the end, and all tokens that the sentence's rules ask for.
        """
        required = sentence.rule_data.get(REQUIRED)
        further = [
            self._settings.eos_id,
            *(sentence.tokens if self._is_shared else ()),
            *sentence.rule_data.get(FORCED_PREFIX, ()),
            *(required.pieces if required is not None else ()),
        ]
        tokens = self._lexicon.candidates(sentence.tokens, further)
        if self._settings.bos_id != self._settings.eos_id:
            tokens = tokens[tokens != self._settings.bos_id]
        return sentence._replace(shortlist=Shortlist(tokens, self._settings.eos_id))
