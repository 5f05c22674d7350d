"""What is said before training begins."""

from __future__ import annotations

import pytest

from coterie.core.progress import Progress
from coterie.experiments import preparation
from coterie.experiments.config import Experiment


class Log(Progress):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(("most", "said"), [(40 * 30, False), (40 * 30 - 1, True)])
def test_a_ranking_of_many_items_for_many_users_is_announced(
    most: int, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "MANY_SCORES", most)
    values = {"algorithm": "popular", "dataset": "synthetic", "n_users": 40, "n_items": 30}
    log = Log()
    data = preparation.load_data(Experiment.of(values), log)
    assert (data.n_users, data.n_items) == (40, 30)
    assert ("every method ranks 30 items for up to 40 users" in " ".join(log.lines)) == said
