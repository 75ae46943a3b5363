"""The search of a translator with models that torch computes, and the rules that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nmt_cli.hardware.choices import Computing
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.engine import SearchEngine
from nmt_cli.search.rules.logits_rule import LogitsRule, MinimumLength, NoRepeatedNgrams
from nmt_cli.search.rules.phrase_rules import BannedPhrases, ForcedPrefix, RequiredPhrases
from nmt_cli.search.sampled_candidates import SampledCandidates
from nmt_cli.search.sampling import Sampling
from nmt_cli.translating.request import Constraints
from nmt_cli.translating.wanted_output import WantedOutputs

if TYPE_CHECKING:
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees


def search_of_models(
    models: Sequence[Transformer],
    settings: SearchSettings,
    rules: Callable[[], Sequence[LogitsRule]],
    sampling: Sampling | None,
    computing: Computing,
) -> SearchEngine:
    """Return the search of ``models`` together."""
    return SearchEngine(
        models,
        settings,
        rules,
        SampledCandidates(sampling) if sampling is not None else None,
        max_tokens=computing.max_tokens,
        arithmetic=(computing.precision, computing.fp32_products),
        cuda_graphs=computing.cuda_graphs,
    )


def rules_for(
    eos_id: int,
    constraints: Constraints,
    trees: WellFormedTrees | None,
    outputs: WantedOutputs,
) -> list[LogitsRule]:
    """Return the rules that the search of the sentences of ``outputs`` made so far needs."""
    rules: list[LogitsRule] = [] if trees is None else [trees]
    if constraints.min_length:
        rules.append(MinimumLength(constraints.min_length, eos_id))
    if constraints.no_repeat_ngram is not None:
        rules.append(NoRepeatedNgrams(constraints.no_repeat_ngram))
    if outputs.has_phrases:
        rules += [BannedPhrases(), RequiredPhrases(eos_id), ForcedPrefix()]
    return rules
