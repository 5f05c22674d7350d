"""Sample recommendations of a run, for its page."""

from __future__ import annotations

import numpy as np

from coterie.errors import UserError
from coterie.experiments.finished_run import Recommendation, Run
from coterie.report.samples import SampleList

HISTORIES = 3
LENGTH = 5


def sample_lists(run: Run) -> list[SampleList]:
    """Lists for new users with one popular item each; none where the run cannot serve them.

    Users of training would tell more, but a page is made to be shown, and it would hold what they
    did.
    """
    catalogue = run.catalogue
    counts = np.bincount(catalogue.seen.items, minlength=len(catalogue.item_ids))
    popular = np.argsort(-counts, kind="stable")[:HISTORIES]
    try:
        return [_sample(run, int(item)) for item in popular]
    except UserError:
        # A run on ratings, an algorithm without new users, a tower that needs their features.
        return []


def _sample(run: Run, item: int) -> SampleList:
    found = run.recommend_new_user([run.catalogue.item_ids[item]], LENGTH)
    return SampleList(_title_of(run, item), [_title(one) for one in found])


def _title_of(run: Run, item: int) -> str:
    texts = run.catalogue.item_texts
    return str(run.catalogue.item_ids[item] if texts is None else texts[item])


def _title(recommended: Recommendation) -> str:
    return recommended.text or str(recommended.item)
