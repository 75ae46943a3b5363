"""``nmt-cli score``: BLEU, chrF and more of translations against references."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.commands.lines.standard_streams import StandardOutput, name_of_input
from nmt_cli.commands.scoring.system_comparison import (
    Comparison,
    NamedText,
    Segments,
    SegmentScores,
)
from nmt_cli.corpus.references import fitting_tokenizer
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.language_codes import NAMES
from nmt_cli.corpus.text.text_traits import traits_of
from nmt_cli.documents.formats import ARCHIVES, SAVED_AS, format_of
from nmt_cli.files.lines import texts_of
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import slips
from nmt_cli.metrics import bleu
from nmt_cli.metrics.scorer import Method, Resampling, Score, Scorer
from nmt_cli.metrics.tokenization import FOR_TEXT_WITHOUT_SPACES, Tokenization

LONG_FOR_TER = 200  # words
LOW_BLEU = 10.0  # below which the languages are compared, because that takes a second
LOWEST_BLEU, LEAST_LINES = 2.0, 5  # with fewer lines, BLEU depends on chance
NOT_READ = [endings for ending, endings in SAVED_AS.items() if ending in {".docx", ".pptx"}]
LOOKED_AT = 200  # lines whose language is identified


class RenderedTerms(NamedTuple):
    """How many of the terms in a source have one of their forms in the translation."""

    rendered: int
    occurred: int  # different terms of each line

    @property
    def share(self) -> float | None:
        """The percentage that was rendered; None if no term occurs."""
        return 100 * self.rendered / self.occurred if self.occurred else None

    def __str__(self) -> str:
        if self.share is None:
            return "Terms: none occurs in the source"
        return f"Terms {self.share:.2f}  {self.rendered:,} of {self.occurred:,} rendered"


@dataclass(frozen=True)
class ScoreOptions:
    """The options of ``score`` for texts, with their defaults."""

    tokenize: Tokenization | None = None
    lowercase: bool = False
    chrf_word_order: int = 0
    paper: str | None = None
    ter: bool = False
    terms: Path | None = None
    source: Path | None = None
    num_refs: int = 1
    documents: Path | None = None
    by_line: bool = False
    worst: int | None = None
    compared: Sequence[Path] = ()
    test: Method | None = None
    samples: int | None = None
    seed: int | None = None
    output_format: str = "text"


def run(hypotheses: Path, references: Sequence[Path], **keywords: Any) -> None:
    """Write the scores of ``hypotheses`` against ``references`` to stdout.

    The keywords are the fields of ``ScoreOptions``. Raises UserError if options contradict each
    other, if a file cannot be read, is empty or has another number of lines, or if the tokenizer
    needs packages that are not installed; OutputError if stdout cannot be written.
    """
    options = ScoreOptions(**keywords)
    resampling = _resampling(options)
    _check_paper(options)
    _check_segment_options(options)
    _check_that_systems_differ([hypotheses, *options.compared])
    glossary = _glossary(options)
    segments, documents = _read_segments(hypotheses, references, options)
    _warn_of_odd_segments(segments, options)
    scorers = _scorers(options, segments.references)
    terms = comparison = each = None
    if glossary is not None and segments.source is not None:
        terms = rendered_terms(glossary, segments.source.lines, segments.hypotheses.lines)
    num_lines = len(segments.hypotheses.lines)
    if documents is not None:
        segments = segments.joined(documents)
    reference_lines = [text.lines for text in segments.references]
    scores = {
        scorer.key: scorer.score(segments.hypotheses.lines, reference_lines) for scorer in scorers
    }
    if segments.compared:
        systems = [segments.hypotheses, *segments.compared]
        comparison = Comparison.of(systems, reference_lines, scorers, resampling)
    bleus = [scores["bleu"].score]
    if comparison is not None:  # BLEU is the first metric
        bleus += [of_system.score for of_system in comparison.outcomes[0].systems[1:]]
    for system, found in zip([segments.hypotheses, *segments.compared], bleus, strict=True):
        if hint := _why_so_low(found, system, segments.references):
            logs.warning(hint)
    if options.by_line or options.worst:
        each = SegmentScores.of(segments, scorers, options.worst)
    if options.output_format == "json":
        output = _as_json(num_lines, segments.documents, scores, terms, comparison, each)
    else:
        output = _as_text(scores, terms, comparison, each)
    StandardOutput().write(f"{output}\n".encode())


def _glossary(options: ScoreOptions) -> Glossary | None:
    """Return the terms to look for. Raises WrongUsageError if they have no source."""
    if options.terms is None:
        return None
    if options.source is None:
        raise WrongUsageError(
            "--terms and --source go together: --source is the text that was translated, where "
            "the terms of --terms occur."
        )
    return Glossary.read(options.terms)


def rendered_terms(
    glossary: Glossary, sources: Sequence[str], hypotheses: Sequence[str]
) -> RenderedTerms:
    """Count the terms of ``sources``, and those whose translation is in the hypothesis."""
    are_rendered = [
        term.form_in(hypothesis) is not None
        for source, hypothesis in zip(sources, hypotheses, strict=True)
        for term in glossary.found_in(source)
    ]
    return RenderedTerms(sum(are_rendered), len(are_rendered))


def _scorers(options: ScoreOptions, references: Sequence[NamedText]) -> list[Scorer]:
    fitting, remark = fitting_tokenizer([line for text in references for line in text.lines])
    if options.tokenize is None and remark is not None:
        logs.warning(f"{references[0].name}: BLEU takes --tokenize {fitting}: {remark}")
    if options.ter and fitting in FOR_TEXT_WITHOUT_SPACES:
        logs.warning(
            f"{references[0].name} has no spaces between words, and TER counts what is between "
            "spaces as words, so its figure says little; omit --ter."
        )
    scorers: list[Scorer] = [
        bleu.bleu_scorer(options.tokenize or fitting, lowercase=options.lowercase)
    ]
    if options.paper is not None:
        scorers.append(bleu.paper_bleu_scorer(*bleu.PAPER_PAIRS[options.paper]))
    scorers.append(
        bleu.chrf_scorer(lowercase=options.lowercase, word_order=options.chrf_word_order)
    )
    if options.ter:
        scorers.append(bleu.ter_scorer())
    return [replace(each, of_documents=options.documents is not None) for each in scorers]


def _check_paper(options: ScoreOptions) -> None:
    paper = options.paper
    if paper is None:
        return
    if paper not in bleu.PAPER_PAIRS:
        meant = slips(paper, bleu.PAPER_PAIRS)
        hint = f"Did you mean {meant[0]}?" if meant else "Leave --paper out for other pairs."
        raise WrongUsageError(
            f"--paper {paper}: the paper's BLEU is defined for its language pairs only, "
            f"{' and '.join(bleu.PAPER_PAIRS)}. {hint}"
        )
    if options.tokenize == "none":
        raise WrongUsageError(
            "--paper tokenizes plain text, but --tokenize none is for text that is tokenized "
            "already; leave one of the two out."
        )
    if options.lowercase:
        raise WrongUsageError("the paper's BLEU is cased; leave --lowercase or --paper out.")


def _check_segment_options(options: ScoreOptions) -> None:
    """Raise WrongUsageError if the options about lines and documents contradict others."""
    of_segments = "--by-line" if options.by_line else "--worst" if options.worst else None
    if options.by_line and options.worst:
        raise WrongUsageError("--by-line has all lines, --worst some of them; leave one out.")
    if of_segments and options.compared:
        raise WrongUsageError(
            f"{of_segments} is about HYPOTHESES alone; leave it or --compare out."
        )
    if options.source is not None and options.terms is None and options.worst is None:
        raise WrongUsageError(
            "--source is read for --terms and --worst only; add one of them, or leave it out."
        )
    if options.documents is not None and options.paper is not None:
        raise WrongUsageError("the paper's BLEU is of sentences; leave --documents or --paper out.")


def _resampling(options: ScoreOptions) -> Resampling:
    for name in ("test", "samples", "seed"):
        if getattr(options, name) is not None and not options.compared:
            raise WrongUsageError(
                f"--{name} needs --compare SYSTEM, the translations to compare with."
            )
    return Resampling.chosen(options.test, options.samples, options.seed)


def _check_that_systems_differ(paths: Sequence[Path]) -> None:
    for place, path in enumerate(paths):
        if path in paths[:place]:
            raise WrongUsageError(
                f"{path} is given twice; --compare needs another system's output."
            )


def _read_segments(
    hypotheses: Path, references: Sequence[Path], options: ScoreOptions
) -> tuple[Segments, dict[str, list[int]] | None]:
    """Return the lines of all texts, and the indices of the lines of each document.

    Raises UserError as ``_read_texts`` does, or for a line without its references or its document.
    """
    if options.num_refs > 1 and len(references) > 1:
        raise WrongUsageError(
            f"--num-refs {options.num_refs} is for one file with all references, separated by "
            f"tabs; {len(references)} files are given."
        )
    extra = [path for path in (options.source, options.documents) if path is not None]
    first, *texts = _read_texts([hypotheses, *references, *options.compared, *extra])
    documents = None if options.documents is None else _documents_of(texts.pop())
    source = None if options.source is None else texts.pop()
    reference_texts, compared = texts[: len(references)], texts[len(references) :]
    if options.num_refs > 1:
        reference_texts = _columns(reference_texts[0], options.num_refs)
    return Segments(first, reference_texts, compared, source), documents


def _documents_of(ids: NamedText) -> dict[str, list[int]]:
    """Return the indices of the lines of each document by its id, in the order of first lines.

    Raises UserError if a line has no id.
    """
    documents: dict[str, list[int]] = {}
    for index, line in enumerate(ids.lines):
        if not line.strip():
            raise UserError(
                f"{ids.name}:{index + 1} is blank; --documents needs the id of a document on each "
                "line, as sacrebleu --echo docid prints them."
            )
        documents.setdefault(line.strip(), []).append(index)
    return documents


def _columns(text: NamedText, number: int) -> list[NamedText]:
    """Return the columns of a text with tabs. Raises UserError if a line has another number."""
    rows = [line.split("\t") for line in text.lines]
    for line_number, row in enumerate(rows, 1):
        if len(row) != number:
            raise UserError(
                f"{text.name}:{line_number} has {counted(len(row), 'column')}, --num-refs is "
                f"{number}; a line has each reference once, with tabs in between."
            )
    return [
        NamedText(f"{text.name}, column {place}", column)
        for place, column in enumerate(zip(*rows, strict=True), 1)
    ]


def _read_texts(paths: Sequence[Path]) -> list[NamedText]:
    """Return the lines of each file, one of which may be stdin.

    Raises UserError if a file cannot be read, is empty or has another number of lines.
    """
    for path in paths:
        if format_of(path) in ARCHIVES or any(path.suffix.lower() in each for each in NOT_READ):
            raise UserError(
                f"{path} is a document, and score compares lines of text; save it as plain text "
                "with a segment in each line, as the other files."
            )
    texts = [NamedText(name_of_input(path), texts_of(path)) for path in paths]
    for name, lines in texts:
        if not lines:
            raise UserError(f"{name} is empty; there is nothing to score.")
    hypotheses, *others = texts
    num_lines = len(hypotheses.lines)
    for name, lines in others:
        if len(lines) != num_lines:
            raise UserError(
                f"{hypotheses.name} has {counted(num_lines, 'segment')}, {name} has "
                f"{len(lines):,}; segment n of the hypotheses is compared with segment n of the "
                "references (one a line), so give files of the same text."
            )
    return texts


def _warn_of_odd_segments(segments: Segments, options: ScoreOptions) -> None:
    """Warn of text in pieces, of tokenized text unless it may be, and of what slows TER down."""
    advice = "Detokenize it, or use --tokenize none if both sides must stay tokenized."
    if options.paper is not None:
        advice = "Detokenize it; --paper would tokenize it again."
    texts = [segments.hypotheses, *segments.references, *segments.compared]
    for name, lines in texts:
        if bleu.looks_in_pieces(lines):
            logs.warning(f"{name} looks as if it were still in pieces; join them before scoring.")
        elif bleu.looks_tokenized(lines) and options.tokenize != "none":
            logs.warning(
                f"{name} looks tokenized; BLEU is comparable on detokenized text only. {advice}"
            )

    if options.ter:
        _warn_of_long_segments(texts)


def _why_so_low(score: float, hypotheses: NamedText, references: Sequence[NamedText]) -> str | None:
    """Return what may be wrong with the files if BLEU is so low; None if it is not."""
    if score >= LOW_BLEU:
        return None
    found = traits_of(hypotheses.lines[:LOOKED_AT]).certain_language
    for name, lines in references:
        shown = traits_of(lines[:LOOKED_AT])
        other = shown.certain_language
        if found and other and shown.is_certainly_not(found):
            return (
                f"{hypotheses.name} seems to be {NAMES[found]}, and {name} {NAMES[other]}; BLEU "
                "compares texts of one language."
            )
    if score < LOWEST_BLEU and len(hypotheses.lines) >= LEAST_LINES:
        return (
            f"BLEU of {hypotheses.name} is below {LOWEST_BLEU:g}; does line n of it translate "
            "line n of the references? Are the files in the same order?"
        )
    return None


def _warn_of_long_segments(texts: Sequence[NamedText]) -> None:
    """Warn of the first segment for which TER takes long: the time grows with words squared."""
    for name, lines in texts:
        for number, line in enumerate(lines, 1):
            num_words = len(line.split())
            if num_words > LONG_FOR_TER:
                logs.warning(
                    f"{name}:{number}: {num_words:,} words; TER takes seconds to minutes for each "
                    f"segment of more than {LONG_FOR_TER}. Omit --ter, or score sentences."
                )
                return


def _as_json(
    num_lines: int,
    documents: Sequence[str] | None,
    scores: Mapping[str, Score],
    terms: RenderedTerms | None,
    comparison: Comparison | None,
    each: SegmentScores | None,
) -> str:
    figures: dict[str, Any] = {"lines": num_lines}
    if documents is not None:
        figures["documents"] = len(documents)
    figures.update((key, score.figures()) for key, score in scores.items())
    if terms is not None:
        figures["terms"] = {"score": terms.share, **terms._asdict()}
    if comparison:
        figures["comparison"] = comparison.as_figures()
    if each is not None:
        figures["segments"] = each.as_figures()
    return json.dumps(figures, indent=2)


def _as_text(
    scores: Mapping[str, Score],
    terms: RenderedTerms | None,
    comparison: Comparison | None,
    each: SegmentScores | None,
) -> str:
    """Return what goes to stdout; if that is the TSV of --by-line, all else goes to stderr."""
    lines = [*map(str, scores.values()), *([] if terms is None else [str(terms)])]
    if each is not None and each.worst is None:
        signatures = (f"{key}: {signature}" for key, signature in each.signatures.items())
        for line in (*lines, "The columns of each line or document:", *signatures):
            logs.info(line)
        return each.as_text()
    more = [comparison.as_table()] if comparison else [each.as_text()] if each else []
    return "\n\n".join(["\n".join(lines), *more])
