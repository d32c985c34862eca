import numpy as np
import pytest
from llama.cache import step
from llama.checkpoint import Config, read_checkpoint
from llama.contiguous_cache import ContiguousCache
from llama.model import Llama
from llama.tokenizer import read_tokenizer
from micro.adam import WARM_UP, Adam
from micro.gradient import logits_of, loss_and_gradient
from micro.lesson import Lesson, accuracy, word_by_word
from micro.pairs import learn_tokenizer
from micro.sums import HELD_OUT, Sum, all_sums, right_in, words

SMALL = Config(dim=16, hidden_dim=24, layers=2, heads=2, kv_heads=1, vocab=13, seq_len=9)


def random_weights(config, dtype):
    draw = np.random.default_rng(0)
    shapes = {name: shape for name, shape in config.shapes.items() if not name.startswith("legacy")}
    return {name: (0.4 * draw.standard_normal(s) + name.endswith("norm")).astype(dtype) for name, s in shapes.items()}


@pytest.mark.parametrize("name", [name for name in SMALL.shapes if not name.startswith("legacy")])
def test_the_gradient_is_the_slope_of_the_loss(name):
    """Central differences in float64: their error is about the square of the step."""
    draw, weights, apart = np.random.default_rng(1), random_weights(SMALL, np.float64), 1e-5
    tokens, shares = draw.integers(0, SMALL.vocab, (3, 9)), draw.random((3, 8))
    _loss, gradient = loss_and_gradient(SMALL, weights, tokens, shares)
    weight = weights[name]
    for place in draw.permutation(weight.size)[:12]:
        index = np.unravel_index(place, weight.shape)
        losses, before = [], weight[index]
        for to in (before + apart, before - apart):
            weight[index] = to
            losses.append(loss_and_gradient(SMALL, weights, tokens, shares)[0])
        weight[index] = before
        slope = (losses[0] - losses[1]) / (2 * apart)
        assert abs(slope - gradient[name][index]) <= 1e-6 * max(1, abs(slope))


def test_a_token_that_counts_nothing_changes_nothing():
    weights, draw = random_weights(SMALL, np.float64), np.random.default_rng(2)
    tokens, shares = draw.integers(0, SMALL.vocab, (2, 6)), np.full((2, 5), 0.1)
    shares[:, -1] = 0
    other = tokens.copy()
    other[:, -1] = (tokens[:, -1] + 1) % SMALL.vocab
    first, second = (loss_and_gradient(SMALL, weights, seen, shares)[0] for seen in (tokens, other))
    assert first == second


def test_training_and_inference_are_the_same_model():
    """Two ways to write the same: whole rows with a mask, and one token after the other on plain arrays."""
    weights = random_weights(SMALL, np.float32)
    tokens = np.random.default_rng(3).integers(0, SMALL.vocab, (2, 9))
    expected = logits_of(SMALL, weights, tokens)
    side = np.zeros(0, np.float32)
    model, cache = Llama(SMALL, weights, side), ContiguousCache(SMALL, side)
    texts = [cache.begin([]) for _ in tokens]
    for place in range(9):
        logits = step(model, cache, texts, [[int(row[place])] for row in tokens])
        assert np.abs(logits - expected[:, place]).max() <= 1e-5 * np.abs(expected).max()


def test_the_first_step_of_adam_is_the_rate_in_the_direction_of_the_sign():
    """After one step both means are (1 - beta) g, corrected to g, so the step is rate x g / |g|, after decay."""
    weights = {"w": np.array([[1.0, -2.0]], np.float32), "norm": np.array([1.0], np.float32)}
    adam = Adam(weights, 0.5, 1_000_000)
    adam.step({"w": np.array([[3e-3, -1e-2]], np.float32), "norm": np.array([2e-2], np.float32)})
    rate = 0.5 / WARM_UP
    assert np.allclose(weights["w"], [[(1 - 0.1 * rate) - rate, -2 * (1 - 0.1 * rate) + rate]], atol=1e-6)
    assert np.allclose(weights["norm"], [1 - rate], atol=1e-6)


def test_the_rate_warms_up_and_falls_to_nothing():
    adam = Adam({}, 1.0, 1000)
    rates = []
    for _ in range(1000):
        adam.step({})
        rates.append(adam.rate_now())
    assert rates.index(max(rates)) == WARM_UP - 1
    assert rates[-1] == pytest.approx(0, abs=1e-12)


def test_a_few_steps_lower_the_loss():
    tokenizer = learn_tokenizer(" ".join(map(str, all_sums()[::50])), 100)
    config = Config(16, 32, 1, 2, 1, len(tokenizer.pieces), 24)
    weights, lesson = random_weights(config, np.float32), Lesson(tokenizer, 0, 1.0)
    adam, losses = Adam(weights, 0.05, 100), []
    for _ in range(25):
        loss, gradient = loss_and_gradient(config, weights, *lesson.rows(8, 24))
        adam.step(gradient)
        losses.append(loss)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (21, "twenty-one"),
        (48, "forty-eight"),
        (115, "one hundred fifteen"),
        (100, "one hundred"),
    ],
)
def test_numbers_in_words(number, said):
    assert words(number) == said


def test_a_sum_reads_as_it_is_spoken():
    assert str(Sum(12, "plus", 7)) == "twelve plus seven is nineteen."
    assert str(Sum(40, "minus", 1)) == "forty minus one is thirty-nine."


def test_one_sum_in_ten_is_held_out_and_never_shown():
    held_out = {str(one) for one in all_sums() if one.held_out}
    assert len(all_sums()) == 100 * 100 + 100 * 101 // 2
    assert abs(len(held_out) * HELD_OUT / len(all_sums()) - 1) < 0.1
    tokenizer = learn_tokenizer(" ".join(map(str, all_sums())), 200)
    ids, shares = Lesson(tokenizer, 0, 0.25).rows(200, 48)
    shown = {f"{sentence.strip()}." for row in ids for sentence in tokenizer.decode(row.tolist()).split(".")[:-1]}
    assert len(shown) > 500
    assert not shown & held_out
    assert shares.shape == (200, 48)
    assert shares.sum() == pytest.approx(1)


def test_words_encoded_one_by_one_are_those_of_the_text():
    tokenizer = learn_tokenizer(" ".join(map(str, all_sums()[::20])), 200)
    ids_of = word_by_word(tokenizer)
    assert all(ids_of(str(one)) == tokenizer.encode(str(one))[1:] for one in all_sums()[::500])


def test_questions_count_for_less_than_answers():
    tokenizer = learn_tokenizer(" ".join(map(str, all_sums())), 200)
    ids, shares = Lesson(tokenizer, 0, 0.25).rows(1, 48)
    counted = "".join(
        tokenizer.decode([token]) for token, share in zip(ids[0, 1:], shares[0], strict=True) if share == shares.max()
    )
    right = {f" {one.answer}" for one in all_sums()}
    assert len(counted.split(".")) > 3
    assert all(answer in right for answer in counted.split(".")[:-1])


def test_true_and_false_sums_are_told_apart():
    text = "one plus one is two. two plus two is five. three minus one is two. four plu"
    assert right_in(text) == (2, 3)
    assert right_in(" ".join(map(str, all_sums()[::1000]))) == (16, 16)


def test_a_model_that_knows_nothing_is_never_right():
    tokenizer = learn_tokenizer(" ".join(map(str, all_sums()[::50])), 100)
    config = Config(16, 32, 1, 2, 1, len(tokenizer.pieces), 24)
    assert accuracy(config, random_weights(config, np.float32), tokenizer, all_sums()[::500]) == 0


def test_the_micro_model_is_right_about_nearly_all_that_it_never_saw(examples):
    config, weights = read_checkpoint(examples / "micro" / "model.bin")
    tokenizer = read_tokenizer(examples / "micro" / "tokenizer.bin", config.vocab)
    assert (examples / "micro" / "model.bin").stat().st_size <= 300_000
    assert accuracy(config, weights, tokenizer, [one for one in all_sums() if one.held_out]) >= 0.98
