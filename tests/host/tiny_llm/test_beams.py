"""Beam search against one that forks nothing: it computes every text anew, from its first token, on plain arrays."""

import numpy as np
import pytest
from llama import beams as beams_of_llama
from llama.batch import Request, generate
from llama.beams import beam_search
from llama.cache import step
from llama.checkpoint import Config
from llama.contiguous_cache import ContiguousCache
from llama.tokenizer import BEGIN

PROMPT = "four plus five is nine. forty"
NEVER = frozenset()


def search_anew(stage, prompt, beams, most, ends):
    """The best texts as (tokens, score), by the definition."""
    alive, ended = [(prompt, 0.0)], []
    for _ in range(most):
        grown = []
        for tokens, score in alive:
            cache = stage.contiguous
            (logits,) = step(stage.model, cache, [cache.begin([])], [tokens]).astype(np.float64)
            chances = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            grown += [([*tokens, token], score + float(chance)) for token, chance in enumerate(chances)]
        grown.sort(key=lambda one: -one[1])
        alive = []
        for tokens, score in grown:
            if len(alive) == beams:
                break
            (ended if tokens[-1] in ends else alive).append((tokens, score))
        ended = sorted(ended, key=lambda one: -one[1])[:beams]
        if len(ended) == beams:
            alive = [one for one in alive if one[1] > ended[-1][1]]
    return sorted([*ended, *alive], key=lambda one: -one[1])[:beams]


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("stop", ["", ".", "plus minus"])
def test_beams_find_what_a_search_without_forks_finds(stage, beams, stop):
    prompt = stage.encode(PROMPT)
    ends = frozenset(stage.encode(stop)[2 if stop == "." else 1 :])
    expected = search_anew(stage, prompt, beams, 12, ends)
    with stage.pool(4) as pool:
        found = beam_search(stage.model, stage.cache(pool), prompt, beams, 12, ends)
        assert not pool.sequences
        assert pool.block_pool.used == 0
        pool.check()
    assert [one.tokens for one in found] == [tokens for tokens, _score in expected]
    assert np.allclose([one.score for one in found], [score for _tokens, score in expected], atol=1e-4)
    assert [one.done for one in found] == [one.tokens[-1] in ends for one in found]
    assert any(one.done for one in found) == bool(stop)


def test_an_end_among_the_best_gives_its_beam_to_the_next(monkeypatch):
    """By hand: the best two are an end (0.5) and a (0.26), and b (0.24) goes on too; b ends for certain, a does not."""
    end, start, a, b = range(4)
    chances = {start: [0.5, 0, 0.26, 0.24], a: [0.25, 0.25, 0.25, 0.25], b: [1, 0, 0, 0]}

    def step(_model, _cache, _texts, new):
        with np.errstate(divide="ignore"):
            return np.log(np.array([chances[ids[-1]] for ids in new], np.float32))

    monkeypatch.setattr(beams_of_llama, "step", step)
    plain = ContiguousCache(Config(8, 8, 1, 1, 1, 4, 8), np.zeros(0, np.float32))
    first, second = beam_search(None, plain, [start], 2, 3, frozenset({end}))
    assert (first.tokens, second.tokens) == ([start, end], [start, b, end])
    assert np.allclose(np.exp([first.score, second.score]), [0.5, 0.24])


def test_one_beam_is_greedy(stage):
    prompt = stage.encode(PROMPT)
    with stage.pool() as pool:
        (found,) = beam_search(stage.model, stage.cache(pool), prompt, 1, 12, NEVER)
        assert found.tokens == generate(stage.model, stage.cache(pool), Request(prompt, 12, ends=NEVER))


def test_beams_share_what_they_have_in_common_and_copy_what_they_write(stage):
    """Four beams over a prompt of whole blocks hold those once; each writes to a last block of its own."""
    prompt, seen = stage.encode(PROMPT)[:8], []
    assert prompt[0] == BEGIN
    with stage.pool(4) as pool:

        def look():
            seen.append(([one.table for one in pool.sequences], pool.block_pool.used))

        beam_search(stage.model, stage.cache(pool), prompt, 4, 9, NEVER, look)
    for tables, used in seen:
        assert len({tuple(table[:2]) for table in tables}) == 1
        assert used == len({block for table in tables for block in table})
    assert [len(tables[0]) for tables, _used in seen] == [2, 3, 3, 3, 3, 4, 4, 4]
    assert all(used < sum(map(len, tables)) for tables, used in seen)
    assert any(used > len(tables[0]) for tables, used in seen)
