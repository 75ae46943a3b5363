"""The search with models: its engine, its rules, its choice of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.hardware.choices import Computing
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.search.constrained_candidates import ConstrainedCandidates
from nmt_cli.search.driver import Finish
from nmt_cli.search.engine import SearchEngine
from nmt_cli.search.rules.rule import (
    BannedPhrases,
    Choice,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgrams,
    Rule,
    SampledCandidates,
)
from nmt_cli.search.sentences import SearchSettings
from nmt_cli.translating.attention_to_source import AttentionToSource
from nmt_cli.translating.wanted_output import WantedOutputs

if TYPE_CHECKING:
    from nmt_cli.model.compiled.packed_model import PackedModel
    from nmt_cli.model.transformer import Transformer


def engine_for(
    models: Sequence[PackedModel | Transformer],
    tokenizer: Tokenizer,
    settings: ModelSettings,
    search: SearchSettings,
    computing: Computing,
    outputs: WantedOutputs,
    *,
    attention_of_all: bool,
) -> SearchEngine:
    """Return what searches the sentences of ``outputs`` with all ``models`` together.

    ``settings`` are those of the first one. Without ``attention_of_all``, only hypotheses of
    sentences that need it get what they attend to.
    """

    def finish_of(first: PackedModel | Transformer) -> Finish:
        tag_length = len(outputs.marks.tag)
        found = AttentionToSource(first, tokenizer, settings, tag_length, of_all=attention_of_all)
        return Finish(found.is_needed, found.with_attention)

    rules, choice = rules_for(search, outputs), choice_for(search, outputs)
    return SearchEngine(models, search, rules, choice, computing, finish_of)


def rules_for(search: SearchSettings, outputs: WantedOutputs) -> list[Rule]:
    """Return the rules of the search; a sentence without data for one is not restricted by it."""
    constraints, trees = outputs.constraints, outputs.limits.trees
    rules: list[Rule] = [NoRepeatedNgrams(), BannedPhrases(), ForcedPrefix()]
    if trees is not None:
        rules.append(trees)
    if constraints.min_length:
        rules.append(MinimumLength(constraints.min_length, search.eos_id))
    return rules


def choice_for(search: SearchSettings, outputs: WantedOutputs) -> Choice:
    """Return the choice of candidates for sentences that have none of their own."""
    if outputs.sampling is not None:
        return SampledCandidates(outputs.sampling)
    return ConstrainedCandidates(2 * search.beam_size, search.eos_id)
