"""What is wanted for the output of each line, as sentences for the search."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.search.constrained_candidates import ConstrainedCandidates
from nmt_cli.search.rules import phrases as phrase_rules
from nmt_cli.search.rules import rule
from nmt_cli.search.rules.phrases import Constraint, Phrase, Phrases, RequiredPhrases
from nmt_cli.search.rules.rule import CandidateChoice, Rule
from nmt_cli.search.sentences import Sampling, SearchSettings, Sentence, samples_of
from nmt_cli.translating.encoding.copies import (
    Copy,
    FindRuns,
    Part,
    ProtectedText,
    SourceCopies,
    are_ambiguous,
    limits_of,
)
from nmt_cli.translating.encoding.language_tags import LanguageTags
from nmt_cli.translating.encoding.output_limits import OutputLimits
from nmt_cli.translating.encoding.target_phrases import (
    OneOf,
    TargetPhrase,
    TargetPhrases,
    refuse_many,
)
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.request import AnyOf, LineError, Request

FOR_SAMPLES = "required phrases, glossaries and protected text are for a search, not for samples"
NO_TREES = "choose mbr compares texts, but this model writes trees"
PARSES = "this model parses; the only rule possible is one about the longest output"

SHARING_BEAM = ("required", "glossary", "protect")  # constraints that share the beam
MOST_KEPT = 8  # rules that are kept prepared: of requests whose lines take turns in a worker


class Wanted(NamedTuple):
    """What is wanted for a line, by its request and by the options for all lines."""

    request: Request = Request("")
    n_best: int = 1  # how many outputs
    is_strict: bool = False  # whether the line fails if protected text is not copied exactly once
    prefix: tuple[TargetPhrase, ...] = ()  # one or none
    required: tuple[OneOf, ...] = ()
    banned: tuple[TargetPhrase, ...] = ()
    no_repeat_ngram: int | None = None
    glossary: Glossary | None = None
    protection: Protection | None = None  # what is copied
    tag: Sequence[int] = ()  # pieces in front of each source
    # As the search takes them, and the pieces that the longest output must allow.
    required_phrases: RequiredPhrases | None = None
    banned_phrases: Phrases | None = None
    shortest: int = 0

    @property
    def needs_model(self) -> bool:
        """Whether no text is its own translation.

        The output must begin with the prefix, and may not have a banned phrase.
        """
        return bool(self.prefix or self.banned)

    @property
    def rule_data(self) -> dict[str, Any]:
        """The data of the rules about pieces."""
        data = {
            phrase_rules.FORCED_PREFIX: self.prefix[0].ids if self.prefix else None,
            phrase_rules.REQUIRED: self.required_phrases,
            phrase_rules.BANNED: self.banned_phrases,
            phrase_rules.NO_REPEATED_NGRAMS: self.no_repeat_ngram,
        }
        return {name: each for name, each in data.items() if each is not None}


class SentenceBuilder:
    """Makes the sentences of each line, with all that the search needs to know of them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: OutputLimits,
        constraints: Constraints,
        *,
        tags: LanguageTags | None = None,
        end: Sequence[int] = (),
        sampling: Sampling | None = None,
        is_parser: bool = False,
    ) -> None:
        """``end`` are the tokens behind every source, and ``tags`` has those in front.

        Raises UserError if ``constraints`` do not suit the model or contradict each other.

        Raises WrongUsageError if they ask for phrases that ``sampling`` cannot have.
        """
        self.limits, self.constraints = limits, constraints
        self._tags, self._end, self.sampling, self._is_parser = tags, end, sampling, is_parser
        self._phrases = TargetPhrases(tokenizer)
        self._copies = SourceCopies(tokenizer, self._phrases)
        self._kept: dict[Hashable, Wanted] = {}  # of lines, the last one used last
        self._automata: dict[Any, RequiredPhrases] = {}  # the last one
        if is_parser and any(constraints._replace(max_length=None, protect_strict=False)):
            raise UserError(f"{PARSES}.")
        shared = [name for name in SHARING_BEAM if getattr(constraints, name)]
        if sampling is not None and shared:
            raise WrongUsageError(f"{FOR_SAMPLES}; leave out --{shared[0]} or --sample.")
        given = constraints._asdict().items()
        of_lines = {name: value for name, value in given if name in Request._fields}
        self._for_all = Wanted()
        try:
            self._for_all = self._for_line(Request("", **of_lines))
        except LineError as error:
            raise UserError(f"{error}; change one of these options.") from None

    def for_another_thread(self) -> SentenceBuilder:
        """Return what makes the same sentences, and shares nothing that changes."""
        other = copy(self)
        other._kept, other._automata = {}, {}
        return other

    def wanted(self, request: Request) -> Wanted:
        """Return what is wanted for a line. Raises LineError if that is impossible."""
        if request.error is not None:
            raise LineError(request.error)
        self.limits.refuse_wrong(request)
        if self.sampling is not None and (request.required or request.glossary or request.protect):
            raise LineError(FOR_SAMPLES)
        if self._is_parser and request.choose == "mbr":
            raise LineError(NO_TREES)
        if self._is_parser and request._replace(prefix=request.prefix or None).own_rules:
            raise LineError(PARSES)
        tag = () if self._tags is None else self._tag_of(self._tags, request)
        if self._tags is not None and request.tag and request.source_language is None:
            request = request._replace(source_language=self._tags.source_of(request.tag))
        rules = request.own_rules
        wanted = self._for_all if rules is None else self._prepared(rules, request)
        strict = request.protect_strict
        return wanted._replace(
            request=request,
            n_best=self.limits.n_best if request.n_best is None else request.n_best,
            is_strict=self.constraints.protect_strict if strict is None else strict,
            tag=tag,
        )

    def _tag_of(self, tags: LanguageTags, request: Request) -> Sequence[int]:
        if self.constraints.memory is not None and (request.tag or None) not in {None, tags.of_all}:
            raise LineError(
                "its tag is that of another pair than the memory; leave one of them out"
            )
        return tags.pieces(request.text, request.tag)

    def protected(
        self, text: str, protection: Protection | None, find_runs: FindRuns | None
    ) -> ProtectedText:
        """Return ``text`` with the spans that its translation copies.

        They are those that ``protection`` finds, and the runs that ``find_runs`` finds.
        """
        if protection is None and find_runs is None:
            return ProtectedText(text)
        matches = () if protection is None else protection.found_in(text)
        return self._copies.of(text, matches, find_runs)

    def sentences(
        self,
        parts: Sequence[Part],
        words: Sequence[str],
        wanted: Wanted,
        need_units: Sequence[bool] = (),
    ) -> list[Sentence]:
        """Return what is searched for a line: a sentence for each part, or samples of each.

        ``words`` are the leaves of its tree. The prefix is that of the first part, and each part
        has the terms that occur in it, and its own copies. An output may be as long as its minimum
        length, its prefix and its required phrases need. ``need_units`` says which parts need what
        their units attend to. Raises LineError if terms contradict other constraints.
        """
        sentences = list[Sentence]()
        for number, part in enumerate(parts):
            of_part = self._of_part(wanted, part, is_first=number == 0)
            tokens = [*wanted.tag, *part.tokens]
            longest, of_trees = self.limits.of_source(len(tokens), words)
            sentence = Sentence(
                [*tokens, *self._end],
                max(longest, of_part.shortest),
                {**of_trees, **of_part.rule_data},
                wanted.n_best,
                beam_size=wanted.request.beam_size,
                length_penalty=wanted.request.length_penalty,
                shares_beam=of_part.required_phrases is not None,
                needs_words=bool(wanted.request.alignments),
                needs_units=bool(need_units and need_units[number]) or are_ambiguous(part.copies),
                tag_length=len(wanted.tag),
            )
            lists = self.limits.shortlists
            sentences.append(sentence if lists is None else lists.added_to(sentence))
        if self.sampling is not None:
            return samples_of(sentences, self.sampling, wanted.request.line or 0, wanted.n_best)
        return sentences

    def _of_part(self, wanted: Wanted, part: Part, *, is_first: bool) -> Wanted:
        """Return what is wanted for a part of a line, with its terms and its copies.

        If its copies contradict other constraints, they are left out, unless that fails the line.
        """
        if part.copies and not wanted.is_strict:
            try:
                return self._with_terms(wanted, part.text, part.copies, is_first=is_first)
            except LineError:
                part = part._replace(copies=())
        return self._with_terms(wanted, part.text, part.copies, is_first=is_first)

    def _with_terms(
        self, wanted: Wanted, text: str, copies: Sequence[Copy], *, is_first: bool
    ) -> Wanted:
        terms = wanted.glossary.found_in(text) if wanted.glossary is not None else ()
        if not is_first:
            wanted = wanted._replace(prefix=())
        if not terms and not copies:
            return wanted
        of_terms = self._phrases.encode_constraints(AnyOf(term.targets) for term in terms)
        return self._checked(wanted._replace(required=(*wanted.required, *of_terms)), copies)

    def rules(self, eos_id: int) -> list[Rule]:
        """Return the rules of the search; one without data for a sentence does not restrict it."""
        rules: list[Rule] = [rule.NoRepeatedNgrams(), rule.BannedPhrases(), rule.ForcedPrefix()]
        if self.limits.trees is not None:
            rules.append(self.limits.trees)
        if self.constraints.min_length:
            rules.append(rule.MinimumLength(self.constraints.min_length, eos_id))
        return rules

    def choice(self, search: SearchSettings) -> CandidateChoice:
        """Return the choice of candidates."""
        if self.sampling is not None:
            return rule.SampledCandidates(self.sampling)
        return ConstrainedCandidates(2 * search.beam_size, search.eos_id)

    def have_rules_for(self, wanted: Wanted) -> bool:
        """Return whether rules restrict the output of a line."""
        rules = self.constraints.min_length or wanted.rule_data
        return bool(rules) or wanted.glossary is not None or wanted.protection is not None

    def _prepared(self, rules: Hashable, request: Request) -> Wanted:
        """Return what a line asks for by its own ``rules``.

        Lines with the same rules that follow each other, such as those of a request, share it.
        """
        wanted = self._kept.pop(rules, None) or self._for_line(request)
        if len(self._kept) == MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[rules] = wanted
        return wanted

    def _for_line(self, request: Request) -> Wanted:
        for_all, prefix, banned = self._for_all, self._for_all.prefix, self._for_all.banned
        if request.prefix is not None:
            prefix = self._phrases.encode_prefix(request.prefix)
        required = self._phrases.encode_constraints(request.required)
        banned_phrases = for_all.banned_phrases
        if own_banned := self._phrases.encode_all(request.banned):
            banned = (*banned, *own_banned)
            banned_phrases = Phrases(phrase.ids for phrase in banned)
        n = request.no_repeat_ngram
        wanted = for_all._replace(
            prefix=prefix,
            required=(*for_all.required, *required),
            banned=banned,
            banned_phrases=banned_phrases,
            no_repeat_ngram=for_all.no_repeat_ngram if n is None else n,
        )
        return self._checked(wanted)._replace(
            glossary=self._terms(request), protection=self._protection(request)
        )

    def _protection(self, request: Request) -> Protection | None:
        """Return the patterns of a line. Raises LineError if its own ones are wrong."""
        if not request.protect:
            return self._for_all.protection
        try:
            return Protection(self.constraints.protect, request.protect)
        except ValueError as error:
            raise LineError(f"protect: {error}") from None

    def _terms(self, request: Request) -> Glossary | None:
        """Return the terms of a line. Raises LineError if its own ones are wrong."""
        for_all, own = self._for_all.glossary, request.glossary
        if not own:
            return for_all
        try:
            own = own if isinstance(own, Glossary) else Glossary.of(own)
        except ValueError as error:
            raise LineError(str(error)) from None
        return own if for_all is None else for_all.with_more(own)

    def _checked(self, wanted: Wanted, copies: Sequence[Copy] = ()) -> Wanted:
        """Return ``wanted`` with its required phrases and ``copies`` as the search takes them.

        Raises LineError if it contradicts itself.
        """
        limits = limits_of(copies, self._phrases.continuing) if copies else {}
        phrases = [phrase.ids for each in wanted.required for phrase in each]
        refuse_many([*phrases, *(form.ids for forms in limits for form in forms)])
        for phrase in wanted.prefix:
            _refuse_forbidden(f"the prefix {phrase.shown}", phrase, wanted)
        possible = tuple(_possible(each, wanted) for each in wanted.required)
        for each in copies:
            _possible(each.phrases, wanted)
        required = self._required_phrases(possible, limits)
        prefix = wanted.prefix[0].ids if wanted.prefix else ()
        return wanted._replace(required_phrases=required, shortest=self._shortest(prefix, required))

    def _required_phrases(
        self, required: tuple[OneOf, ...], limits: Mapping[Constraint, tuple[int, int]]
    ) -> RequiredPhrases | None:
        """Return the constraints as the search takes them."""
        if not required and not limits:
            return None
        key = required, tuple(limits.items())
        if key not in self._automata:
            constraints = [tuple(phrase.form for phrase in each) for each in required]
            self._automata.clear()  # lines that follow each other often want the same
            self._automata[key] = RequiredPhrases(constraints, self._phrases.continuing, limits)
        return self._automata[key]

    def _shortest(self, prefix: Phrase, required: RequiredPhrases | None) -> int:
        """Return how many pieces the shortest output has. Raises LineError for too many."""
        of_phrases, least = len(prefix), self.constraints.min_length
        if required is not None:
            of_phrases += required.fewest_after(prefix)
        for what, number in (
            ("the prefix and the required phrases need", of_phrases),
            ("--min-length asks for", least),
        ):
            if self.limits.longest is not None and number > self.limits.longest:
                most = f"an output has at most {self.limits.longest:,}"
                raise LineError(f"{what} {number:,} pieces, but {most}")
        if len(prefix) > self.limits.longest_prefix:
            possible = f"only {self.limits.longest_prefix:,} are possible"
            raise LineError(f"the prefix has {len(prefix):,} pieces, but {possible}")
        return max(of_phrases, least)


def _possible(one_of: OneOf, wanted: Wanted) -> OneOf:
    """Return the phrases that are not forbidden. Raises LineError if all are."""
    possible, reason = list[TargetPhrase](), LineError()
    for phrase in one_of:
        try:
            _refuse_forbidden(f"the required phrase {phrase.shown}", phrase, wanted)
            possible.append(phrase)
        except LineError as error:
            reason = error
    if not possible:
        raise reason
    return tuple(possible)


def _refuse_forbidden(name: str, phrase: TargetPhrase, wanted: Wanted) -> None:
    for other in wanted.banned:
        if phrase.contains(other.ids):
            raise LineError(f"{name} contains the banned phrase {other.shown}")
    n = wanted.no_repeat_ngram
    if n is not None and phrase.repeats(n):
        raise LineError(f"{name} breaks the rule no_repeat_ngram {n}")
