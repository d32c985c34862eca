"""What a token costs, by hand."""

import pytest

from paged import KVSpec, ModelSpec


def test_bytes_of_a_token_by_hand():
    spec = KVSpec(layers=32, kv_heads=8, head_dim=128, dtype="bfloat16")
    assert spec.component_token_bytes == 2048  # 8 heads x 128 numbers x 2 bytes
    assert spec.layer_token_bytes == 4096  # K and V
    assert spec.token_bytes == 131072  # 128 KiB, as is published for Llama 3 8B
    assert KVSpec(32, 8, 128, "float32").token_bytes == 2 * 131072


def test_a_latent_is_one_component():
    assert KVSpec(layers=27, kv_heads=1, head_dim=576, components=1).token_bytes == 27 * 576 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers must be a whole number of at least 1, not 0"),
        ({"kv_heads": -1}, "kv_heads .* not -1"),
        ({"head_dim": 2.5}, "head_dim .* not 2.5"),
        ({"window": 0}, "window .* not 0"),
        ({"components": 3}, "components must be 2 .* not 3"),
        ({"dtype": "float8_e4m3fn"}, "'float8_e4m3fn' is not supported yet; use one of: float32, float16, bfloat16"),
        ({"dtype": "double"}, "'double' is unknown; use one of"),
    ],
)
def test_a_wrong_value_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        KVSpec(**{"layers": 2, "kv_heads": 2, "head_dim": 8} | change)


def test_a_model_adds_up_its_groups():
    full, windowed = KVSpec(2, 4, 8, "float16"), KVSpec(6, 4, 8, "float16", window=512)
    model = ModelSpec("small", 1000, 8, 4096, (full, windowed), dtype="float16")
    assert (model.layers, model.token_bytes) == (8, 8 * 2 * 4 * 8 * 2)
    assert (model.weight_bytes, model.active_parameters) == (2000, 1000)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="'empty' has no layers"):
        ModelSpec("empty", 1000, 8, 4096, ())
