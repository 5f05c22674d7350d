"""Noise that is added to sums: by the server, or by each client to what it uploads."""

from __future__ import annotations

from coterie.core import streams
from coterie.federated.federation import AnyExchange, AnyWorld, Sums
from coterie.federated.privacy.discrete_gaussian import (
    WordSource,
    discrete_gaussian,
    seeded_words,
    system_words,
    words_from_key,
)
from coterie.federated.privacy.plan import NoisePlan, plan_for
from coterie.types import Longs, Message


def plan_of(world: AnyWorld, exchange: AnyExchange) -> NoisePlan | None:
    """The noise of an exchange; None where the run has no privacy budget."""
    private = exchange.private_sum
    return None if private is None else plan_for(world, private)


def release(world: AnyWorld, exchange: AnyExchange, message: Message, sums: Sums) -> Sums:
    """Sums that were not summed securely, as the algorithm gets them."""
    secure = exchange.secure_sum
    if plan_of(world, exchange) is None or secure is None or not sums:
        return sums
    table = secure.to_table(world, sums)
    return secure.from_table(world, with_central_noise(world, exchange, message, table))


def with_central_noise(
    world: AnyWorld, exchange: AnyExchange, message: Message, sums: Sums
) -> Sums:
    """Sums with noise, where the server draws it. Sums by item have a row for every item."""
    plan = plan_of(world, exchange)
    if plan is None or world.settings.noise != "central":
        return sums
    words = _server_words(world, message)
    return {
        name: total + central_noise(plan, total.size, words).reshape(total.shape)
        for name, total in sorted(sums.items())
    }


def central_noise(plan: NoisePlan, length: int, words: WordSource) -> Longs:
    """What the server adds to a sum of so many entries."""
    return discrete_gaussian(length, plan.log2_sigma, words)


def _server_words(world: AnyWorld, message: Message) -> WordSource:
    if world.settings.noise_source == "system":
        return system_words()
    stream = streams.at(world.seed, "privacy noise", message.round, message.exchange)
    return seeded_words(stream)


def fewest_survivors(world: AnyWorld, exchange: AnyExchange) -> int:
    """How many clients of a group must survive for the sake of noise; 0 where they add none."""
    plan = plan_of(world, exchange)
    return 0 if plan is None else plan.fewest_survivors


def share_of_noise(plan: NoisePlan, length: int, key: bytes) -> Longs:
    """What one client adds to its vector. `key` is a secret of the client for this sum.

    The same key gives the same noise: an upload that is repeated must not be noised anew, since the
    average of two would have less noise.
    """
    return discrete_gaussian(length, plan.log2_sigma, words_from_key(key))
