import itertools
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama.tokenizer import BEGIN, Tokenizer, read_tokenizer, write_tokenizer
from micro.pairs import SPECIAL, learn_tokenizer

BYTES = tuple(f"<0x{byte:02X}>".encode() for byte in range(256))


def tokenizer_of(pieces):
    return Tokenizer(
        (*SPECIAL, *BYTES, *(piece.encode() for piece in pieces)), (0.0,) * 259 + tuple(map(float, pieces.values()))
    )


ABC = tokenizer_of({" ": -9, "a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1, "abc": -3, " abc": -4, "cc": -1})


def spelled(text, tokenizer=ABC):
    return [tokenizer.pieces[token].decode() for token in tokenizer.encode(text)[1:]]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("a", [" ", "a"]),
        ("abc", [" abc"]),  # bc, then abc, then the space before it
        ("abca", [" abc", "a"]),
        ("ab", [" ", "ab"]),
        ("ccc", [" ", "cc", "c"]),  # of two pairs alike the first
        ("b\u00e9", [" ", "b", "<0xC3>", "<0xA9>"]),
    ],
)
def test_the_best_pair_merges_first(text, pieces):
    assert ABC.encode(text)[0] == BEGIN
    assert spelled(text) == pieces


def one_pair_after_the_other(tokenizer, text):
    """As it is defined: look at all pairs of neighbours, merge the best, the first of two alike, and look again."""
    tokens = [token for character in text for token in tokenizer._character(character)]
    while True:
        found = [
            (-tokenizer.scores[merged], place, merged)
            for place, (a, b) in enumerate(itertools.pairwise(tokens))
            if (merged := tokenizer.ids.get(tokenizer.pieces[a] + tokenizer.pieces[b])) is not None
        ]
        if not found:
            return tokens
        _score, place, merged = min(found)
        tokens[place : place + 2] = [merged]


@given(st.text("abc ", min_size=1, max_size=60), st.permutations(range(9)))
def test_merging_is_as_it_is_defined_whatever_the_scores(text, scores):
    pieces = (" ", "a", "b", "c", "ab", "bc", "abc", "aa", "caa")
    tokenizer = tokenizer_of(dict(zip(pieces, (score // 2 for score in scores), strict=True)))
    assert tokenizer.encode(text)[1:] == one_pair_after_the_other(tokenizer, f" {text}")


def test_a_long_text_takes_little_longer_a_character():
    started = time.process_time()
    assert len(ABC.encode("abca" * 10_000)) == 20_002 - 1
    assert time.process_time() - started < 10  # quadratic in its length it would take many minutes


@given(st.text())
def test_every_text_comes_back(text):
    learned = learn_tokenizer("forty-two plus two is forty-four.", 20)
    for tokenizer in (ABC, learned):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_that_are_no_text_are_replaced():
    assert ABC.decode([BEGIN, 3 + 0xC3]) == "\ufffd"


def test_a_text_that_goes_on_keeps_its_space():
    assert ABC.decode(ABC.encode("abc")[1:]) == " abc"


def test_a_file_is_read_as_it_was_written(tmp_path):
    write_tokenizer(tmp_path / "t", ABC)
    assert read_tokenizer(tmp_path / "t", len(ABC.pieces)) == ABC
    assert (tmp_path / "t").read_bytes()[:12] == struct.pack("<ifi", 6, 0.0, 5)


def good(tmp_path):
    write_tokenizer(tmp_path / "t", ABC)
    return (tmp_path / "t").read_bytes()


@pytest.mark.parametrize(
    ("change", "vocab", "says"),
    [
        (lambda raw: raw[:0], 268, "ends after 0 tokens"),
        (lambda raw: raw[:-5], 268, "token 267 has a length of 2 bytes|ends after 267 tokens"),
        (lambda raw: raw[:8] + struct.pack("<i", -1) + raw[12:], 268, "token 0 has a length of -1 bytes"),
        (lambda raw: raw, 269, "ends after 268 tokens; the model has 269"),
        (lambda raw: raw, 267, "has 10 bytes more than the 267 tokens of the model"),
        (lambda raw: raw[:4] + 3 * struct.pack("<fi", 0, 0), 3, "has 3 tokens; 259 are needed"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, change, vocab, says):
    (tmp_path / "bad.bin").write_bytes(change(good(tmp_path)))
    with pytest.raises(ValueError, match=rf"^\S*bad\.bin .*({says})") as refused:
        read_tokenizer(tmp_path / "bad.bin", vocab)
    assert "\n" not in str(refused.value)


def test_words_become_tokens_and_no_token_reaches_over_a_hyphen():
    tokenizer = learn_tokenizer("forty-two forty-one forty-two two", 100)
    assert spelled("forty-two two.", tokenizer) == [" forty", "-two", " two", "<0x2E>"]
    assert not any(b"y-" in piece for piece in tokenizer.pieces)


def test_the_pair_met_most_often_is_learned_first():
    assert learn_tokenizer("aab aab ab", 1).pieces[259] == b"ab"


def test_the_published_tokenizer(stories):
    tokenizer = read_tokenizer(stories / "tok512.bin", 512)
    text = (stories / "stories260K_greedy.txt").read_text()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert spelled("Once upon a time", tokenizer)[:3] == [" Once", " upon", " a"]
