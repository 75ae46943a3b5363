"""Loss, perplexity, and BLEU or F1 on the validation sets, and on copies whose text is changed."""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.corpus.prepared import PreparedCorpus, ValidationSet
from nmt_cli.corpus.references import References, references_of
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import joined_pieces
from nmt_cli.files.file_names import SETS
from nmt_cli.hardware.memory import FullMemoryError, give_up_memory_of
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.messages.figures import null_if_not_finite, perplexity_of, short_number
from nmt_cli.metrics import bleu
from nmt_cli.model.compiled.c_library import library_for
from nmt_cli.parsing.parseval import score_trees
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.training import ValidationSearch
from nmt_cli.training.batch_cut import BatchCut, computed_within_memory
from nmt_cli.training.changed_sets import changed_sets
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.validation_outputs import Verdict, judge
from nmt_cli.translating.translator import Translator

QUALITY_DIGITS = 2  # of BLEU and F1, as they are shown: less is chance
NUM_SUMS = 5  # those that ``Validator._loss_sums`` returns
MEAN = "mean of all sets"  # no set can have this name
_KEPT = " The best checkpoint and the patience stay as they were."
LINES_BETWEEN_POLLS = 500  # of the validation text, after which requests to stop are exchanged


class Validation(NamedTuple):
    """Figures of a validation set; losses are in nats, means of a target token."""

    loss: float  # label-smoothed, as in training
    nll: float
    bleu: float | None
    quality: float | None  # what "best" compares, higher is better; None is never the best
    parseval: float | None = None  # F1 of the parses, if the text is a treebank
    name: str | None = None  # of the set
    sets: "tuple[Validation, ...]" = ()  # of each set, if they have names; this one decides
    signature: str | None = None  # of BLEU
    script: float | None = None  # the number of --validation-script
    why_no_number: str | None = None  # of the script
    translations: Sequence[str] = ()

    @property
    def perplexity(self) -> float:
        """exp(nll): the perplexity of a piece."""
        return perplexity_of(self.nll)

    def as_record(self) -> dict[str, Any]:
        """Return the figures for a manifest or a log; None replaces those that are not finite.

        If sets have names, ``sets`` holds the figures of each, also if it is the one that decides.
        """
        record: dict[str, Any] = self._figures()
        if self.sets:
            named = (each for each in self.sets if each.name is not None)
            record[SETS] = {each.name: each._figures() for each in named}
            for figures in record[SETS].values():
                del figures["quality"]
        return record

    def _figures(self) -> dict[str, Any]:
        figures = {**self._asdict(), "perplexity": self.perplexity}
        for name in ("name", "sets", "signature", "why_no_number", "translations"):
            del figures[name]
        if self.script is None:
            del figures["script"]
        if self.signature is not None:
            figures["bleu_signature"] = self.signature
        return null_if_not_finite(figures)

    def log(self, step: int, *, is_best: bool) -> None:
        """Log the figures; if the sets have names, a line for each set."""
        for each in (*self.sets, *(() if self.sets and self.name != MEAN else (self,))):
            of_set = f", {each.name}" if each.name is not None else ""
            mark = " (best)" if is_best and each.name == self.name else ""
            logs.info(f"step {step:,}{of_set}: {each}{mark}")
            if each.why_no_number is not None:
                logs.warning(
                    f"step {step:,}{of_set}: --validation-script gave no number: "
                    f"{each.why_no_number}.{_KEPT if self.quality is None else ''}"
                )

    def __str__(self) -> str:
        loss, perplexity = short_number(self.loss, 4), short_number(self.perplexity, 3)
        text = f"validation loss {loss}, perplexity {perplexity}"
        if self.parseval is not None:
            text += f", F1 {self.parseval:.2f}"
        if self.bleu is not None:
            text += f", BLEU {self.bleu:.2f}"
        return text if self.script is None else f"{text}, script {short_number(self.script, 4)}"


def _mean_of(sets: Sequence[Validation], digits: int | None) -> Validation:
    """Return the mean of each figure, of the quality in ``digits``; None if a set does not have it.

    BLEU has the signature of the first set.
    """

    def mean(name: str) -> Any:
        values = [getattr(each, name) for each in sets]
        return None if None in values else math.fsum(values) / len(values)

    quality = mean("quality")
    return Validation(
        **{name: mean(name) for name in ("loss", "nll", "bleu", "parseval", "script")},
        quality=quality if quality is None or digits is None else round(quality, digits),
        name=MEAN,
        signature=sets[0].signature,
    )


class Validator:
    """Measures the model of an engine on the validation sets of a recipe."""

    def __init__(
        self,
        recipe: Recipe,
        corpus: PreparedCorpus,
        engine: GradientEngine,
        script: str | None = None,
    ) -> None:
        """``script`` judges the translations, if it is given; its number decides then."""
        self._recipe, self._corpus, self._engine = recipe, corpus, engine
        self._script = script
        changed = changed_sets(recipe, corpus)
        self._sets: list[ValidationSet] = [*corpus.validation, *changed]
        self._references: dict[str | None, References] = {}  # by the name of the set
        self._logged_signatures: set[str] = set()
        if recipe.validation.bleu != "off":
            library_for(engine.machine.device.type)  # raises here, not at the first validation
        if recipe.validation.bleu != "off" and engine.machine.ranks.is_main:
            self._references = {each.name: self._references_of(each) for each in self._sets}
        without_loss = [str(each.name) for each in changed if not len(each.target)]
        if without_loss and engine.machine.ranks.is_main:
            logs.warning(
                f"validation.robustness: no loss for {', '.join(without_loss)}, because every pair "
                "becomes longer than data.max_length; raise that, or leave the change out."
            )

    def _references_of(self, measured: ValidationSet) -> References:
        """Return the references of a set. Raises UserError if BLEU cannot be computed of them."""
        references = references_of(self._recipe, measured.lines("target"))
        tokenize, remark = references.tokenizer
        bleu.bleu_scorer(tokenize)
        if remark is not None:
            of_set = f" of {measured.name}" if measured.name is not None else ""
            logs.warning(f"BLEU of the validation text{of_set} takes {tokenize}: {remark}")
        return references

    def validate(
        self, max_tokens: int, stop: StopRequest, judged: Mapping[str | None, float | None] = {}
    ) -> Validation | None:
        """Return the figures of the model as it is now, or None if ``stop`` came meanwhile.

        Of several sets, these are the figures of the set that decides which checkpoint is the best,
        or the mean; their ``sets`` has the figures of each. The micro-batches hold at most
        ``max_tokens`` a side. The model is left in evaluation mode. Each rank measures a share of
        each set, and all return the same figures. Raises FullMemoryError on all ranks if a sentence
        pair does not fit the memory of one of them, and UserError if a line cannot be translated.

        ``judged`` has the numbers that the script gave this model before, by the names of the sets;
        that of the main rank counts.
        """
        self._engine.model.eval()
        config, ranks = self._recipe.validation, self._engine.machine.ranks
        sets = self._sets
        search = config.parseval if self._has_trees else config.bleu
        sums = [self._loss_sums(each, max_tokens, stop) for each in sets]
        hypotheses = [] if search == "off" else self._translate(search, stop)
        totals = ranks.sum([*chain.from_iterable(sums), *stop.flags()])
        of_sets = [totals[at : at + NUM_SUMS] for at in range(0, NUM_SUMS * len(sets), NUM_SUMS)]
        if any(failures for *_, failures in of_sets):
            raise FullMemoryError(on_all_ranks=True)
        if any(cuts for *_, cuts, _ in of_sets):
            logs.warning(
                "memory was full while the validation loss was measured; it was measured in "
                "smaller micro-batches."
            )
        stop.agree(totals[NUM_SUMS * len(sets) :])
        if stop.agreed:
            return None
        by_rank = [] if search == "off" else ranks.gather(hypotheses)
        found = [
            self._measured(each, of_set, [of_rank[number] for of_rank in by_rank])
            for number, (each, of_set) in enumerate(zip(sets, of_sets, strict=True))
        ]
        if self._script is not None:
            for number, each in enumerate(sets):
                logged = ranks.from_main(judged.get(each.name))
                verdict = (
                    Verdict(logged)
                    if logged is not None
                    else self._judged(self._script, each, found[number].translations, stop)
                )
                if verdict is None:
                    return None
                found[number] = found[number]._replace(
                    script=verdict.number, quality=verdict.number, why_no_number=verdict.failure
                )
        decides = config.deciding(found)
        if config.best_on_mean:
            digits = None if self._script or config.best_by == "loss" else QUALITY_DIGITS
            decides = _mean_of(found[: len(self._corpus.validation)], digits)
        has_names = len(found) > 1 or decides.name is not None
        return decides._replace(sets=tuple(found)) if has_names else decides

    def _measured(
        self, measured: ValidationSet, sums: Sequence[float], by_rank: list[list[str]]
    ) -> Validation:
        """Return the figures of a set from its ``_loss_sums`` and its translations, if any."""
        loss, nll, num_tokens, *_ = sums
        loss, nll = (each / num_tokens if num_tokens else math.nan for each in (loss, nll))
        # Line i was translated by rank i modulo their number.
        dealt = chain.from_iterable(zip_longest(*by_rank))
        texts = [text for text in dealt if text is not None]
        score, signature = self._score(measured, texts) if by_rank else (None, None)
        quality = -loss
        if score is not None and self._recipe.validation.best_by != "loss":
            quality = round(score, QUALITY_DIGITS)
        figures = Validation(
            loss, nll, score, quality, name=measured.name, signature=signature, translations=texts
        )
        return figures._replace(bleu=None, parseval=score) if self._has_trees else figures

    def _judged(
        self, script: str, measured: ValidationSet, translations: Sequence[str], stop: StopRequest
    ) -> Verdict | None:
        """Return the verdict of the script, or None if ``stop`` came; text in pieces is joined."""
        source, target = (
            [joined_pieces(line, self._recipe.tokenizer.joiner) for line in measured.lines(side)]
            for side in SIDES
        )
        texts = {"source": source, "reference": target, "output": translations}
        return judge(script, texts, self._engine.machine.ranks, stop)

    @property
    def _has_trees(self) -> bool:
        return self._recipe.data.treebank is not None

    @torch.no_grad()
    def _loss_sums(
        self, measured: ValidationSet, max_tokens: int, stop: StopRequest
    ) -> list[float]:
        """Return sums over this rank's share: loss, nll, target tokens, cuts and failures.

        Cuts are micro-batches that were cut because memory was full. Failures is 1 if that did not
        help, else 0.
        """
        totals = np.zeros(3)
        cuts, cut = 0, BatchCut(max_tokens)
        micro_batches = _micro_batches(measured, max_tokens)
        shared = list(self._engine.machine.ranks.own(micro_batches))
        num_pairs = sum(len(pairs.target.lengths) for _, pairs in shared)
        with logs.progress("validation loss", "pairs", num_pairs) as bar:
            for index, pairs in shared:
                if stop:
                    break
                whole = Batch(index, (pairs,))
                started = time.monotonic()
                try:
                    sums, fitting = computed_within_memory(whole, cut, self._sums)
                except FullMemoryError as error:
                    give_up_memory_of(error)
                    return [*totals.tolist(), cuts, 1.0]
                stop.note_seconds("window", time.monotonic() - started)
                bar.advance(len(pairs.target.lengths))
                totals += sums
                cuts += fitting is not cut
        return [*totals.tolist(), cuts, 0.0]

    def _sums(self, batch: Batch) -> NDArray[np.float64]:
        """Return summed loss, summed nll and target tokens."""
        totals = np.zeros(3)
        for pairs in batch.micro_batches:
            sums = self._engine.loss_sums(pairs)
            totals += [sums.loss.item(), sums.nll.item(), len(pairs.target.tokens)]
        return totals

    def _translate(self, search: ValidationSearch, stop: StopRequest) -> list[list[str]]:
        """Return the translations of this rank's lines of each set.

        They are fewer if ``stop`` came meanwhile.
        """
        model, machine = self._engine.model, self._engine.machine
        beam_size = 1 if search == "greedy" else None
        precision = machine.precision
        if model.rounding is not None and library_for(machine.device.type) is not None:
            precision = "int8"  # without the library, the model itself rounds
        corpus = self._corpus
        learnt = corpus.labels, corpus.characters, corpus.single_sentences
        settings = settings_of(self._recipe, corpus.tokenizer.size, *learnt)
        if settings.pairs:  # lines have the tags of their sets, also none; a sentence needs that
            settings = settings._replace(pairs=(), single_sentences=None)
        with Translator(
            settings,
            corpus.tokenizer,
            model,
            beam_size=beam_size,
            precision=precision,
        ) as translator:  # whose graphs hold memory that training needs
            return [self._translations(translator, each, stop) for each in self._sets]

    def _translations(
        self, translator: Translator, measured: ValidationSet, stop: StopRequest
    ) -> list[str]:
        machine, source_lines = self._engine.machine, measured.lines("source")
        shared = list(machine.ranks.own(source_lines))
        hypotheses: list[str] = []
        # All ranks exchange requests equally often: as often as the one with the most lines.
        most_lines = -(-len(source_lines) // machine.ranks.size)
        with logs.progress("validation translations", "lines", len(shared)) as bar:
            for start in range(0, most_lines, LINES_BETWEEN_POLLS):
                stop.agree(machine.ranks.sum(stop.flags()))
                if stop.agreed:
                    break
                started = time.monotonic()
                hypotheses += _translated(translator, shared[start : start + LINES_BETWEEN_POLLS])
                stop.note_seconds("window", time.monotonic() - started)
                bar.advance(len(hypotheses) - start)
        return hypotheses

    def _score(self, measured: ValidationSet, hypotheses: list[str]) -> tuple[float, str | None]:
        """Return the F1 of a set, or its BLEU and the signature, as translate | score finds them.

        The main rank computes them, so that the tokenizer's packages need not be everywhere.
        """
        ranks = self._engine.machine.ranks
        score, signature = math.nan, None
        if ranks.is_main:
            if self._has_trees:
                score = score_trees(hypotheses, measured.lines("target")).f1
            else:
                lines, (tokenize, _) = self._references[measured.name]
                found = bleu.bleu_scorer(tokenize).score(hypotheses, [lines])
                score, signature = found.score, found.signature
                if signature not in self._logged_signatures:
                    self._logged_signatures.add(signature)
                    logs.info(f"The validation BLEU is sacreBLEU's {signature}.")
        return ranks.from_main((score, signature))


def _micro_batches(measured: ValidationSet, max_tokens: int) -> tuple[SentencePairs, ...]:
    source, target = measured.source, measured.target
    if not len(target):  # a changed copy whose pairs are all too long
        return ()
    by_length = np.lexsort((source.lengths, target.lengths)).astype(np.int64)
    pairs = SentencePairs(source.gather(by_length), target.gather(by_length))
    return Batch(0, (pairs,)).into_micro_batches(max_tokens).micro_batches


def _translated(translator: Translator, numbered: Sequence[tuple[int, str]]) -> list[str]:
    """Return the translations of lines. Raises UserError if one cannot be translated."""
    try:
        window = translator.translate_window([line for _, line in numbered])
    except LinesFailedError as error:
        numbers = [number for number, _ in numbered]
        raise LinesFailedError(numbers[error.first], numbers[error.last]) from error.__cause__
    if failed := next((t.error for t in window if t.error is not None), None):
        raise UserError(f"the validation text could not be translated: {failed}.")
    return [translation.text for translation in window]
