"""The rules of a search with models that torch computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt_cli.search.rules.logits_rule import LogitsRule, MinimumLength, NoRepeatedNgrams
from nmt_cli.search.rules.phrase_rules import BannedPhrases, ForcedPrefix, RequiredPhrases
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
        rules += [BannedPhrases(), RequiredPhrases(eos_id), ForcedPrefix()]
    return rules
