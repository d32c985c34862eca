"""A pool and plain arrays must give the same logits, whatever the pool's blocks and however the tokens come."""

import numpy as np
import pytest
from llama.batch import Request, generate
from llama.cache import step
from llama.contiguous_cache import attention

from kernels_cu import reference

POOLS = [(size, order) for size in (1, 7, 16, 64) for order in ("block", "layer")]
CLOSE = 2e-5
"""Of the largest logit: float32 has 1.2e-7, which some hundred sums in another order make larger."""


def test_plain_attention_is_the_reference_of_the_kernels():
    draw = np.random.default_rng(0)
    query = draw.standard_normal((3, 6, 8)).astype(np.float32)
    key, value = draw.standard_normal((2, 10, 2, 8)).astype(np.float32)
    seen = [10 - 3 + 1 + place for place in range(3)]
    expected = reference.paged_attention(query, [key[:n] for n in seen], [value[:n] for n in seen])
    assert np.abs(attention(query, key, value) - expected).max() <= 1e-6 * np.abs(value).max()


def logits_of(stage, cache, draws):
    """The logits of three texts that grow by chunks and by single tokens, and of a fork of the first."""
    texts, seen = [cache.begin([]) for _ in range(3)], []
    for new in draws:
        seen.append(step(stage.model, cache, texts[: len(new)], new))
    fork = texts[0].fork()
    both = [texts[0], fork]
    for first, second in ((5, 9), (7, 7), (11, 3)):
        seen.append(step(stage.model, cache, both, [[first], [second]]))
    for text in (*texts, fork):
        text.free()
    return np.concatenate(seen)


@pytest.mark.parametrize(("size", "order"), POOLS)
def test_a_pool_gives_the_logits_of_plain_arrays(stage, size, order):
    draw = np.random.default_rng(size)
    lengths = [(20, 1, 7), (1, 1, 1), (3, 30, 2), (16, 1), (1, 1, 1)]
    draws = [[draw.integers(3, stage.config.vocab, n).tolist() for n in counts] for counts in lengths]
    expected = logits_of(stage, stage.contiguous, draws)
    with stage.pool(size, order) as pool:
        assert (pool.layout.block_size, pool.layout.order) == (size, order)
        found = logits_of(stage, stage.cache(pool), draws)
        pool.check()
        assert not pool.sequences
    assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()


@pytest.mark.parametrize(("size", "order"), POOLS)
def test_the_published_text_comes_out_to_the_character(stories_stage, stories, size, order):
    expected = (stories / "stories260K_greedy.txt").read_text().removesuffix("\n")
    with stories_stage.pool(size, order, texts=1) as pool:
        tokens = generate(stories_stage.model, stories_stage.cache(pool), Request(stories_stage.encode(""), 256))
    assert stories_stage.decode(tokens) == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(1, 65, 8))
def test_the_published_text_comes_out_at_every_block_size(stories_stage, stories, first):
    """Eight sizes a test, and the two orders in turn."""
    expected = (stories / "stories260K_greedy.txt").read_text().removesuffix("\n")
    for size in range(first, first + 8):
        order = ("block", "layer")[size // 2 % 2]  # odd and even sizes meet both
        with stories_stage.pool(size, order, texts=1) as pool:
            assert (pool.layout.block_size, pool.layout.order) == (size, order)
            tokens = generate(stories_stage.model, stories_stage.cache(pool), Request(stories_stage.encode(""), 256))
        assert stories_stage.decode(tokens) == expected, size


def test_plain_arrays_give_the_published_text(stories_stage, stories):
    expected = (stories / "stories260K_greedy.txt").read_text().removesuffix("\n")
    request = Request(stories_stage.encode(""), 256)
    assert stories_stage.decode(generate(stories_stage.model, stories_stage.contiguous, request)) == expected
