"""What is not of the right type is told in one line that says what is: at the doors of pools, batches and attention."""

import numpy as np
import pytest

import paged
import vmm
from paged import attention


@pytest.fixture
def pool(device):
    layout = paged.KVLayout(paged.KVSpec(1, 2, 64, "float16"), 16, "block")
    with paged.KVPool(device, layout, budget="8 MiB", prefix_cache=True, name="kv") as made:
        yield made


def test_a_model_is_no_layout(device):
    with pytest.raises(ValueError, match=r"layout must be a KVLayout, such as KVLayout\(spec, 16\), not ModelSpec"):
        paged.KVPool(device, paged.model("llama-3-8b"), budget="8 MiB")


def test_a_group_is_no_list_of_groups(device, pool):
    for one in (pool.layout, pool.layout.spec):
        with pytest.raises(
            ValueError, match="groups must be a ModelSpec or a list of KVSpecs or KVLayouts, not one KV"
        ):
            paged.ModelPool(device, one, budget="8 MiB")


@pytest.mark.parametrize("tokens", ["abc", 1.5, None])
def test_what_is_no_number_of_tokens(pool, tokens):
    with pytest.raises(ValueError, match="append takes a number of tokens, or their ids in a list or an array, not"):
        pool.sequence().append(tokens)


@pytest.mark.parametrize("prompt", [5, "hello"])
def test_what_is_no_prompt(pool, prompt):
    with pytest.raises(ValueError, match=f"'kv' takes token ids, a list or an int32 array, not {prompt!r}"):
        pool.sequence(prompt)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([2**64], f"2\\*\\*31 - 1, not {2**64}$"),
        ([1, 2**63, -1], f"not {2**63}$"),
        ([1, 2.5], "not 2.5$"),
        (np.array([1.0]), r"not np.float64\(1.0\)$"),
        ([3, None], "not None$"),
        (["a"], "not 'a'$"),
        (["a" * 1000], r"not 'a{56}\.\.\.$"),
        ([True], "not True$"),
        (np.array([False]), "not np.False_$"),
        (np.array([1, 2], object), "not an array of object$"),
        ([[1, 2]], r"not of shape \[1, 2\]$"),
        ([[1], [2, 3]], "not lists of different lengths$"),
        ([-1, 7], "not -1 to 7$"),
    ],
)
def test_what_is_no_token_id_is_named(pool, ids, told):
    for ask in (pool.sequence, pool.can_begin, pool.sequence().append):
        with pytest.raises(ValueError, match=f"token ids must be .*{told}"):
            ask(ids)


def test_one_sequence_is_no_list(pool):
    query = np.zeros((1, 2, 64), np.float16)
    with pytest.raises(ValueError, match=r"for one sequence write \[sequence\]"):
        attention.decode(pool, 0, query, pool.sequence())


def test_a_sequence_of_a_model_is_told_to_be_one(device, pool):
    query = np.zeros((1, 2, 64), np.float16)
    with paged.ModelPool(device, [pool.layout], budget="8 MiB") as model:
        sequence = model.sequence()
        with pytest.raises(ValueError, match=r"takes Sequences of it; a ModelSequence was given \(of a"):
            attention.decode(pool, 0, query, [sequence])
        with pytest.raises(ValueError, match="takes Sequences of it; a ModelSequence was given"):
            paged.Batch(pool, [sequence])
        assert attention.decode(model.pools[0], 0, query, [sequence.parts[0]]).shape == query.shape


def test_what_is_no_address(pool):
    with pytest.raises(vmm.RangeError, match=r"an address is a number, such as pool.address\(block=0\), not Sequence"):
        pool.explain(pool.sequence())


def test_an_explanation_prints_as_lines(pool):
    pool.sequence().append(20)
    lines = str(pool.explain(pool.address(block=1, slot=2))).splitlines()
    assert lines[0].startswith("address 0x")
    assert any(line.endswith("token 18") for line in lines)
    assert "layout" not in repr(pool.explain(pool.address(block=1)))


@pytest.mark.parametrize(("name", "odd"), [("max_length", "4096"), ("max_sequences", 2.5)])
def test_the_counts_of_a_reservation_are_whole_numbers(device, name, odd):
    counts = {"max_length": 64, "max_sequences": 2, name: odd}
    with pytest.raises(TypeError, match=f"^{name} must be a whole number, not {odd!r}$"):
        paged.ContiguousKV(device, paged.KVSpec(1, 2, 64), **counts)
