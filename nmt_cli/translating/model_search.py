"""The rules of a search with models that torch computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.choice import Choice
from nmt_cli.search.constrained_candidates import ConstrainedCandidates
from nmt_cli.search.rules.logits_rule import LogitsRule, MinimumLength, NoRepeatedNgrams
from nmt_cli.search.rules.phrase_rules import BannedPhrases, ForcedPrefix
from nmt_cli.search.sampled_candidates import SampledCandidates
from nmt_cli.search.sampling import Sampling
from nmt_cli.translating.request import Constraints
from nmt_cli.translating.wanted_output import WantedOutputs

if TYPE_CHECKING:
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees


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
        rules += [BannedPhrases(), ForcedPrefix()]
    return rules


def choice_for(
    settings: SearchSettings, sampling: Sampling | None, outputs: WantedOutputs
) -> Choice | None:
    """Return the choice that the search of the sentences made so far needs; None: the usual one."""
    if sampling is not None:
        return SampledCandidates(sampling)
    if outputs.has_required:
        return ConstrainedCandidates(2 * settings.beam_size, settings.eos_id)
    return None
