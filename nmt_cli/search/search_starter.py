"""Starts searches, each in the way that suits its rules, the models and the device."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.choice import Choice
from nmt_cli.search.ensemble import Ensemble
from nmt_cli.search.graphed.model import GraphedTransformer
from nmt_cli.search.graphed.search import SearchAhead
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.search.rules.logits_rule import LogitsRule
from nmt_cli.search.search import Search, SlotSearch, StepModel


class SearchStarter:
    """Starts searches with the same models and settings; a new search ends the previous one."""

    def __init__(
        self, models: Sequence[Transformer], settings: SearchSettings, *, cuda_graphs: bool
    ) -> None:
        """Prepare for searches of all ``models`` together."""
        self._settings = settings
        first = models[0]
        self._model: StepModel = CachedTransformer(first)
        if len(models) > 1:
            self._model = Ensemble([self._model, *map(CachedTransformer, models[1:])])
        self._graphed: GraphedTransformer | None = None
        if cuda_graphs and len(models) == 1 and first.output_weight.device.type == "cuda":
            self._graphed = GraphedTransformer(first, settings)

    def start(
        self, num_slots: int, rules: Sequence[LogitsRule], choice: Choice | None
    ) -> SlotSearch[Any]:
        """Return a search without sentences, by CUDA graphs where they are possible.

        Rules and a ``choice`` need the CPU. A search of one sentence gets all the memory instead.
        """
        if self._graphed is not None and not rules and choice is None and num_slots > 1:
            return SearchAhead(self._graphed, num_slots, self._settings)
        return self.start_open(num_slots, rules, choice)

    def start_open(
        self, num_slots: int, rules: Sequence[LogitsRule], choice: Choice | None
    ) -> Search:
        """Return a search without sentences that can get more slots."""
        if self._graphed is not None:
            self._graphed.release()
        return Search(self._model, num_slots, self._settings, rules, choice)

    def end(self) -> None:
        """Empty the caches, but not those of CUDA graphs, which serve the next search."""
        if self._graphed is not None:
            self._graphed.wait()
        self._model.reset(0, 1)

    def end_after_failure(self) -> None:
        """Free all caches and graphs; errors of a GPU that has failed are ignored."""
        if self._graphed is not None:
            with suppress(Exception):
                self._graphed.release()
        with suppress(Exception):
            self._model.reset(0, 1)
