from typing import Any

import numpy as np
import torch

from nmt_cli.search.choice import BestCandidates

NO_STATES: Any = None  # it needs none


def test_equal_candidates_come_by_parent_then_by_token():
    """Two slots; in the second, one hypothesis lives. All tokens of a row are equally probable."""
    logits, normalizers = torch.zeros(4, 7), torch.full((4,), 2.0)
    scores = np.array([[-1.0, -1.0], [-3.0, -np.inf]], np.float32)
    found = BestCandidates(4).candidates(logits, normalizers, scores, NO_STATES)
    assert found.scores.tolist() == [[-3.0] * 4, [-5.0] * 4]
    assert found.parents.tolist() == [[0] * 4, [0] * 4]
    assert found.tokens.tolist() == [[0, 1, 2, 3]] * 2


def test_candidates_of_all_hypotheses_compete():
    logits = torch.tensor([[0.0, 4.0, 1.0], [3.0, 0.5, -torch.inf]])
    scores = np.array([[-1.0, -2.0]], np.float32)
    found = BestCandidates(4).candidates(logits, torch.zeros(2), scores, NO_STATES)
    assert found.scores.tolist() == [[3.0, 1.0, 0.0, -1.0]]
    assert found.parents.tolist() == [[0, 1, 0, 0]]
    assert found.tokens.tolist() == [[1, 0, 2, 0]]
