"""What is wanted for the output of each line, as sentences and rules of the search."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.decoding.constraints import Constraints
from nmt_cli.decoding.output_limits import OutputLimits
from nmt_cli.decoding.request import Request
from nmt_cli.decoding.rules.banned_phrases import BannedPhrases
from nmt_cli.decoding.rules.completion import MOST_PHRASES, completion_of
from nmt_cli.decoding.rules.forced_prefix import ForcedPrefix
from nmt_cli.decoding.rules.logits_rule import LogitsRule
from nmt_cli.decoding.rules.minimum_length import MinimumLength
from nmt_cli.decoding.rules.no_repeated_ngrams import NoRepeatedNgrams
from nmt_cli.decoding.rules.phrases import Phrase, Phrases
from nmt_cli.decoding.rules.required_phrases import RequiredPhrases
from nmt_cli.decoding.search import Sentence
from nmt_cli.decoding.target_phrases import ContradictionError, TargetPhrase, TargetPhrases
from nmt_cli.errors import UserError

NOTHING_FOUND = "the search found no translation that all its rules allow"
NO_PLACE = "it is too long for one part, and its required phrases have no certain part"
PARSES = "this model parses; of all rules about the output only --max-length is possible"


class Wanted(NamedTuple):
    """What is wanted for a line, or why that is impossible."""

    line: int = 0  # its number, for sampling
    n_best: int = 1  # how many outputs
    shortest: int = 0  # pieces that the longest output must allow
    prefix: Phrase = ()
    required: Phrases | None = None
    banned: Phrases | None = None
    error: str | None = None

    @property
    def rule_data(self) -> dict[str, Any]:
        """The data of the rules about phrases."""
        data = {
            ForcedPrefix.name: self.prefix or None,
            RequiredPhrases.name: self.required,
            BannedPhrases.name: self.banned,
        }
        return {name: each for name, each in data.items() if each is not None}


class NBest(NamedTuple):
    """How many outputs a line has by default, and at most."""

    default: int
    most: int


class WantedOutputs:
    """Makes sentences for the search, and the rules that it needs for them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: OutputLimits,
        constraints: Constraints,
        longest: int | None,
        n_best: NBest,
        *,
        is_parser: bool,
    ) -> None:
        """Prepare for outputs that have at most ``longest`` pieces.

        Raises UserError if ``constraints`` do not suit the model or contradict each other.
        """
        self._limits, self._constraints, self._longest = limits, constraints, longest
        self._phrases, self._is_parser = TargetPhrases(tokenizer), is_parser
        self._n_best = n_best
        if is_parser and constraints.more_than_max_length():
            raise UserError(f"{PARSES}.")
        self._rules: list[LogitsRule] = []
        if constraints.min_length:
            self._rules.append(MinimumLength(constraints.min_length, tokenizer.eos_id))
        if constraints.no_repeat_ngram is not None:
            self._rules.append(NoRepeatedNgrams(constraints.no_repeat_ngram))
        self._of_phrases = (BannedPhrases(), RequiredPhrases(tokenizer.eos_id), ForcedPrefix())
        try:
            self._required = self._phrases.encode_all(constraints.required)
            self._banned = self._phrases.encode_all(constraints.banned)
            self._banned_by_all = Phrases(phrase.ids for phrase in self._banned)
            self._prefix = self._phrases.encode_all(_given(constraints.prefix))
            self._for_all = self._checked(self._prefix, self._required, self._banned)
        except ContradictionError as error:
            raise UserError(f"{error}; change one of these options.") from None
        self._uses_phrases = bool(self._for_all.rule_data)

    @property
    def rules(self) -> list[LogitsRule]:
        """The rules that the sentences made so far need."""
        of_phrases = self._of_phrases if self._uses_phrases else ()
        return [*self._limits.rules, *self._rules, *of_phrases]

    def wanted(self, request: Request) -> Wanted:
        """Return what is wanted for a line, or why it is impossible."""
        if request.error is not None:
            return Wanted(error=request.error)
        n_best = self._n_best.default if request.n_best is None else request.n_best
        if not 1 <= n_best <= self._n_best.most:
            return Wanted(error=f"n_best must be from 1 to {self._n_best.most:,}, but is {n_best}")
        wanted = self._for_all
        if request.prefix is not None or request.required or request.banned:
            try:
                wanted = self._for_line(request)
            except ContradictionError as error:
                return Wanted(error=str(error))
        return wanted._replace(line=request.line or 0, n_best=n_best)

    def sentences(
        self, parts: Sequence[Sequence[int]], words: Sequence[str], wanted: Wanted
    ) -> list[Sentence]:
        """Return a sentence for each part of a line, given by its tokens without ``</s>``.

        ``words`` are the leaves of its tree. The prefix is that of the first part. An output may be
        as long as its minimum length, its prefix and its required phrases need.
        """
        data, sentences = wanted.rule_data, []
        self._uses_phrases = self._uses_phrases or bool(data)
        for part in parts:
            sentence = self._limits.sentence(part, words)
            longest = max(sentence.longest_output, wanted.shortest)
            rule_data = {**sentence.rule_data, **data}
            sentences.append(Sentence(sentence.tokens, longest, rule_data, wanted.n_best))
            data.pop(ForcedPrefix.name, None)
        return sentences

    def explained(self, error: str, wanted: Wanted) -> str:
        """Return why a line has no hypothesis: ``error``, unless rules may be the cause."""
        return NOTHING_FOUND if self._rules or wanted.rule_data else error

    def _for_line(self, request: Request) -> Wanted:
        if self._is_parser:
            raise ContradictionError(PARSES)
        prefix = self._prefix
        if request.prefix is not None:
            prefix = self._phrases.encode_all(_given(request.prefix))
        required = (*self._required, *self._phrases.encode_all(request.required))
        banned = (*self._banned, *self._phrases.encode_all(request.banned))
        return self._checked(prefix, required, banned)

    def _checked(
        self,
        prefix: tuple[TargetPhrase, ...],  # one or none
        required: tuple[TargetPhrase, ...],
        banned: tuple[TargetPhrase, ...],
    ) -> Wanted:
        """Return what is wanted. Raises ContradictionError if it contradicts itself."""
        named = [(f"the prefix {phrase.shown}", phrase) for phrase in prefix]
        named += [(f"the required phrase {phrase.shown}", phrase) for phrase in required]
        for name, phrase in named:
            self._refuse_forbidden(name, phrase, banned)
        start = prefix[0].ids if prefix else ()
        all_required = Phrases(phrase.ids for phrase in required)
        return Wanted(
            shortest=self._shortest(start, all_required.phrases),
            prefix=start,
            required=all_required if required else None,
            banned=self._banned_phrases(banned),
        )

    def _banned_phrases(self, banned: tuple[TargetPhrase, ...]) -> Phrases | None:
        if not banned:
            return None
        is_shared = banned == self._banned
        return self._banned_by_all if is_shared else Phrases(phrase.ids for phrase in banned)

    def _refuse_forbidden(
        self, name: str, phrase: TargetPhrase, banned: tuple[TargetPhrase, ...]
    ) -> None:
        for other in banned:
            if phrase.contains(other.ids):
                raise ContradictionError(f"{name} contains the banned phrase {other.shown}")
        n = self._constraints.no_repeat_ngram
        if n is not None and phrase.repeats(n):
            raise ContradictionError(f"{name} breaks the rule --no-repeat-ngram {n}")

    def _shortest(self, prefix: Phrase, required: tuple[Phrase, ...]) -> int:
        """Return how many pieces the shortest output has."""
        if len(required) > MOST_PHRASES:
            raise ContradictionError(
                f"{len(required)} phrases are required, but {MOST_PHRASES} are possible"
            )
        of_phrases = len(prefix)
        if required:
            of_phrases += completion_of(required).num_missing(prefix)
        if self._longest is not None:
            allowed = f"but an output has at most {self._longest:,}"
            if of_phrases > self._longest:
                raise ContradictionError(
                    f"the prefix and the required phrases need {of_phrases:,} pieces, {allowed}"
                )
            if self._constraints.min_length > self._longest:
                raise ContradictionError(
                    f"--min-length asks for {self._constraints.min_length:,} pieces, {allowed}"
                )
        return max(of_phrases, self._constraints.min_length)


def _given(prefix: str | Sequence[str]) -> list[str | Sequence[str]]:
    """Return a list with ``prefix``, or an empty one if it is blank."""
    is_blank = not prefix or (isinstance(prefix, str) and not prefix.strip())
    return [] if is_blank else [prefix]
