import numpy as np
import pytest
from llama.checkpoint import Config, read_checkpoint, write_checkpoint
from llama.contiguous_cache import ContiguousCache
from llama.model import Llama

SMALL = Config(dim=16, hidden_dim=24, layers=2, heads=2, kv_heads=1, vocab=11, seq_len=6)
HEADER = np.array([16, 24, 2, 2, 1, 11, 6], "<i4")


def weights_of(config):
    draw = np.random.default_rng(0)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in config.shapes.items()}


def raw_of(header=HEADER, numbers=None):
    count = (SMALL.file_bytes - 28) // 4 if numbers is None else numbers
    return header.astype("<i4").tobytes() + np.ones(count, "<f4").tobytes()


def with_header(place, value):
    header = HEADER.copy()
    header[place] = value
    return raw_of(header)


def nan_in_w2():
    raw = bytearray(raw_of())
    before = sum(int(np.prod(shape)) for name, shape in list(SMALL.shapes.items())[: list(SMALL.shapes).index("w2")])
    raw[28 + 4 * before : 32 + 4 * before] = np.float32("nan").tobytes()
    return bytes(raw)


def test_the_bytes_are_those_of_the_format(tmp_path):
    """Counted by hand: 11 x 16 + 2 x (16 + 16 x 16 + 8 x 16 + 8 x 16 + 16 x 16 + 16 + 3 x 24 x 16) + 16 + 2 x 6 x 4."""
    assert SMALL.file_bytes == 28 + 4 * (176 + 2 * (16 + 256 + 128 + 128 + 256 + 16 + 1152) + 16 + 48)
    write_checkpoint(tmp_path / "a", SMALL, weights_of(SMALL))
    raw = (tmp_path / "a").read_bytes()
    assert np.frombuffer(raw[:28], "<i4").tolist() == HEADER.tolist()
    assert np.frombuffer(raw[28 : 28 + 176 * 4], "<f4").tolist() == weights_of(SMALL)["embedding"].ravel().tolist()


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_written_is_read(tmp_path, shared):
    config = Config(16, 24, 2, 2, 1, 11, 6, shared)
    written = weights_of(config)
    write_checkpoint(tmp_path / "a", config, written)
    assert (np.frombuffer((tmp_path / "a").read_bytes()[20:24], "<i4")[0] > 0) == shared
    found, read = read_checkpoint(tmp_path / "a")
    assert found == config
    assert list(read) == list(written)
    assert all((read[name] == written[name]).all() for name in written)


def test_a_classifier_of_its_own_is_used():
    config = Config(16, 24, 2, 2, 1, 11, 6, shared_classifier=False)
    weights = weights_of(config)

    def logits(weights, config):
        side = np.zeros(0, np.float32)
        cache, model = ContiguousCache(config, side), Llama(config, weights, side)
        ids = np.array([3, 5])
        return model.forward(ids, np.arange(2), np.array([1]), cache.append([cache.begin([])], [[3, 5]]))

    own = logits(weights, config)
    assert np.allclose(logits({**weights, "classifier": 2 * weights["classifier"]}, config), 2 * own)
    assert not np.allclose(logits({n: w for n, w in weights.items() if n != "classifier"}, SMALL), own)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "has 0 bytes, less than a header"),
        (b"\x01" * 27, "has 27 bytes, less than a header"),
        (raw_of(numbers=10), "has 68 bytes, but its header speaks of"),
        (raw_of() + b"x", f"has {SMALL.file_bytes + 1:,} bytes, but its header speaks of {SMALL.file_bytes:,}"),
        (with_header(2, 0), "layers is 0"),
        (with_header(5, 0), "vocab is 0"),
        (with_header(0, -16), "dim is -16"),
        (with_header(4, 3), "2 heads cannot share 3 KV heads"),
        (with_header(0, 24), "24 over 2 heads is 12 a head"),
        (np.array([1 << 30, 1 << 30, 4, 1 << 24, 1 << 24, 1 << 30, 1 << 30], "<i4").tobytes(), "its header speaks of"),
        (with_header(0, 0x616B3432), "is a later version of the format"),
        (nan_in_w2(), "has weights in w2 that are not finite numbers"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, raw, says):
    (tmp_path / "bad.bin").write_bytes(raw)
    with pytest.raises(ValueError, match=r"^\S*bad\.bin ") as refused:
        read_checkpoint(tmp_path / "bad.bin")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
