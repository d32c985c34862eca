import pytest
from llama.batch import Batch, Request, generate
from llama.sampler import Sampler
from llama.tokenizer import BEGIN

import vmm

QUESTIONS = [
    "four plus five is",
    "sixty minus two is fifty-eight. thirty plus thirty is",
    "one plus one is two. two plus two is four. three plus three is six. nine minus nine is",
    "ninety-nine plus ninety-nine is",
    "",
]


def requests(stage, most=20):
    return [
        Request(stage.encode(question), most, Sampler(0.7 * (place % 2), 0.9, place))
        for place, question in enumerate(QUESTIONS)
    ]


@pytest.fixture
def alone(stage):
    """What each request writes by itself on plain arrays."""
    return [generate(stage.model, stage.contiguous, request) for request in requests(stage)]


@pytest.mark.parametrize(("size", "chunk"), [(1, 100), (2, 3), (5, 1), (5, 100)])
def test_a_text_does_not_depend_on_who_runs_beside_it(stage, alone, size, chunk):
    asked, together = requests(stage), []
    with stage.pool(4) as pool:
        batch = Batch(stage.model, stage.cache(pool), size=size, chunk=chunk)
        for request in asked:
            batch.submit(request)
        batch.run(lambda: together.append(len(batch.running)))
        assert not pool.sequences
        assert pool.block_pool.used == 0
    assert [request.tokens for request in asked] == alone
    assert max(together) <= size


def test_a_request_joins_in_the_middle_and_leaves_when_it_is_done(stage, alone):
    asked, together = requests(stage), []
    with stage.pool(4) as pool:
        batch = Batch(stage.model, stage.cache(pool), chunk=4)
        for request in asked:
            batch.submit(request)
            batch.step()
            batch.step()
            together.append(len(batch.running))
        batch.run()
    assert together == [1, 2, 3, 4, 5]
    assert [request.tokens for request in asked] == alone


def test_a_prompt_goes_in_by_chunks(stage):
    prompt = stage.encode(QUESTIONS[2])
    with stage.pool() as pool:
        batch = Batch(stage.model, stage.cache(pool), chunk=5)
        batch.submit(Request(prompt, 1))
        batch.run()
    assert batch.steps == -(-len(prompt) // 5)


def test_requests_wait_for_blocks_and_all_are_served(stage, alone):
    """Blocks for two texts of at most 40 tokens: the third waits until one has left."""
    asked, together = requests(stage), []
    with stage.pool(8, texts=1) as pool:
        assert pool.blocks_total == 13
        batch = Batch(stage.model, stage.cache(pool))
        for request in asked:
            batch.submit(request)
        batch.run(lambda: together.append(len(batch.running)))
    assert [request.tokens for request in asked] == alone
    assert 1 < max(together) < len(asked)


def test_what_never_fits_is_refused(stage):
    with stage.pool(8, texts=1) as pool:
        batch = Batch(stage.model, stage.cache(pool))
        with pytest.raises(ValueError, match="1 tokens and 96 more are 97, but the model ends at 96"):
            batch.submit(Request([BEGIN], 96))
        pool.set_budget(pool.layout.row_bytes)
        batch.submit(Request([BEGIN], 95))
        batch.run()


def test_an_end_ends_a_text(stage):
    stop = stage.encode(".")[-1]
    with stage.pool() as pool:
        tokens = generate(
            stage.model, stage.cache(pool), Request(stage.encode(QUESTIONS[0]), 20, ends=frozenset({stop}))
        )
    assert stage.decode(tokens) == "four plus five is nine."


def test_a_known_prefix_is_not_computed_again(stage):
    prompt = stage.encode(QUESTIONS[2])
    plain = generate(stage.model, stage.contiguous, Request(prompt, 8))
    with stage.pool(4, prefix_cache=True) as pool:
        cache = stage.cache(pool)
        first, second = Request(prompt, 8), Request(prompt, 8)
        assert generate(stage.model, cache, first) == generate(stage.model, cache, second) == plain
        pool.check()
    assert first.known == 0
    assert second.known == (len(prompt) - 1) // 4 * 4


@pytest.mark.parametrize("backup", [True, False])
def test_sleep_in_the_middle_changes_no_text(stage, alone, backup):
    asked = requests(stage)
    with stage.pool(4, "layer", prefix_cache=not backup) as pool:
        residency = vmm.Residency(stage.device)
        residency.add(pool.range, "kv")
        batch = Batch(stage.model, stage.cache(pool))

        def sleep():
            if batch.steps == 6:
                residency.sleep("kv", backup=backup)
                assert pool.committed == 0
                residency.wake("kv")
                if not backup:
                    batch.recompute()

        for request in asked:
            batch.submit(request)
        batch.run(sleep)
        assert batch.steps > 6
    assert [request.tokens for request in asked] == alone
