"""Stand-ins for prompts that a trace names by hash ids: they begin alike exactly as far as the ids do."""

import numpy as np

from paged.serving.prompt_tokens import PromptTokens


def test_prompts_begin_alike_as_far_as_their_ids_do():
    prompts = PromptTokens([1100, 1200, 512], [[7, 8, 9], [7, 8, 10**12], [4]])
    first, second, other = prompts(0), prompts(1), prompts(2)
    assert (len(first), len(second), len(other)) == (1100, 1200, 512)
    assert first.dtype == np.int32
    assert (first[:1024] == second[:1024]).all()
    assert (first[1024:] != second[1024:1100]).all()
    assert not np.isin(other, first).any()
    assert (prompts(0) == first).all()


def test_ids_that_are_too_few_leave_the_rest_unknown():
    assert len(PromptTokens([2000], [[1]])(0)) == 512


def test_a_prompt_is_counted_once():
    prompts = PromptTokens([1100, 600], [[1, 2, 3], [1, 4]])
    prompts.note(0, 0)
    prompts.note(1, 512)
    prompts.note(1, 592)  # it began again
    assert (prompts.asked, prompts.hit, prompts.asked_tokens, prompts.hit_tokens) == (5, 1, 1700, 512)
