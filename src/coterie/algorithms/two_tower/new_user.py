"""The vector of a new user: the user tower reads what is known about them."""

from __future__ import annotations

import numpy as np

from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.requests import user_texts
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.algorithms.two_tower.training import TowerOps
from coterie.data import text
from coterie.data.text_features import feature_words, read_words
from coterie.errors import ConfigError
from coterie.models.directions import Directions
from coterie.models.new_user import NewUser
from coterie.types import Floats


def score_new_user(model: Directions, user: NewUser, settings: TwoTowers) -> Floats:
    """Cosines of all items with the user's vector; with nothing to read, with the average one."""
    if model.user_tower is None:
        raise ConfigError(
            "the run was written by an earlier version and has no user tower; expected one. "
            "Train again."
        )
    words = words_of(user, settings)
    if not words:
        return model.score_row(model.average_row())
    settings = settings.model_copy(update={"device": "cpu"})  # one user needs no GPU
    content = read_words(words, settings.kind.reads, settings.inputs, settings.most_words)
    titles = np.arange(len(words), dtype=np.int32)[None, :]
    texts = InputRows(*user_texts(content, np.arange(1), titles))
    vectors = TowerOps(settings).directions(model.user_tower, texts, content)
    return model.score_row(vectors[0])


def words_of(user: NewUser, settings: TwoTowers) -> list[list[str]]:
    """What the tower reads: the features, where training had them, or titles of the items."""
    if settings.person == "titles" or not user.known_features:
        titles = spaced_titles(user, settings.titles)
        return [words for words in text.words_of(titles) if words]
    missing = [name for name in user.known_features if name not in user.features]
    if missing:
        example = ",".join(f"{name}=VALUE" for name in user.known_features)
        raise ConfigError(
            f"feature {missing[0]!r} of the new user is missing; the run describes users by "
            f"{', '.join(user.known_features)}, and expected all of them. "
            f"Pass --features {example}, or train with person=titles."
        )
    return [feature_words({name: user.features[name] for name in user.known_features})]


def spaced_titles(user: NewUser, most: int) -> list[str]:
    """As many titles as a profile has, evenly spaced: nothing is drawn at random."""
    titles = list(user.titles)
    n = min(most, len(titles))
    return [titles[k * len(titles) // n] for k in range(n)]
