from collections import Counter

import numpy as np
import pytest
from llama.sampler import Sampler, softmax

CHANCES = np.array([0.1, 0.5, 0.05, 0.2, 0.15])
LOGITS = np.log(CHANCES).astype(np.float32) + 3


def drawn(sampler, count=4000):
    return Counter(sampler.choose(LOGITS) for _ in range(count))


def test_softmax_gives_the_chances():
    assert np.abs(softmax(LOGITS) - CHANCES).max() < 1e-6


def test_a_temperature_near_nothing_is_greedy():
    assert set(drawn(Sampler(1e-300), 50)) == {1}


def test_greedy_takes_the_likeliest_and_of_two_alike_the_first():
    assert Sampler().choose(LOGITS) == 1
    assert Sampler().choose(np.array([1, 2, 2], np.float32)) == 1


def test_draws_have_the_chances_of_the_model():
    """The standard deviation of a share of 4000 draws is at most sqrt(0.25 / 4000) = 0.008."""
    shares = drawn(Sampler(1.0))
    assert all(abs(shares[token] / 4000 - chance) < 0.04 for token, chance in enumerate(CHANCES))


def test_a_temperature_of_two_takes_the_root_of_the_chances():
    shares, roots = drawn(Sampler(2.0)), np.sqrt(CHANCES) / np.sqrt(CHANCES).sum()
    assert all(abs(shares[token] / 4000 - chance) < 0.04 for token, chance in enumerate(roots))


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.4, {1}), (0.5, {1}), (0.6, {1, 3}), (0.84, {1, 3, 4}), (1.0, set(range(5)))]
)
def test_top_p_keeps_the_fewest_tokens_that_have_it_together(top_p, kept):
    shares = drawn(Sampler(1.0, top_p - 1e-6))
    assert set(shares) == kept
    whole = CHANCES[list(kept)].sum()
    assert all(abs(shares[token] / 4000 - CHANCES[token] / whole) < 0.04 for token in kept)


def test_a_seed_gives_the_same_draws_again_and_another_gives_others():
    first, again, other = ([sampler.choose(LOGITS) for _ in range(50)] for sampler in map(seeded, (1, 1, 2)))
    assert first == again != other


def seeded(seed):
    return Sampler(1.0, 1.0, seed)
