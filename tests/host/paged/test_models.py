"""Models by name and from config.json: sizes against what is published with them."""

import json

import pytest

import paged
from paged.config import Config
from paged.parameters import count_parameters

# from the models' own cards and weight files
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-1.5b-instruct": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-14b-instruct": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-32b-instruct": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-72b-instruct": 72_706_203_648,
    "qwen3-0.6b": 751_632_384 - 151_936 * 1024,  # the file holds the tied output a second time
    "qwen3-1.7b": 2_031_739_904 - 151_936 * 2048,  # as above
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "gemma-2-2b-it": 2_614_341_888,
    "gemma-2-9b-it": 9_241_705_984,
    "gemma-2-27b-it": 27_227_128_320,
}
LLAMA = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
}


@pytest.fixture
def config(tmp_path):
    def write(**changes):
        values = {key: value for key, value in {**LLAMA, **changes}.items() if value != "absent"}
        (tmp_path / "config.json").write_text(json.dumps(values))
        return tmp_path / "config.json"

    return write


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameters_are_the_published_count(name, parameters):
    assert paged.model(name).parameters == parameters


def test_every_preset_has_a_published_count():
    assert set(paged.PRESETS) == {*PUBLISHED, "stories260k"}


@pytest.mark.parametrize(
    ("name", "preset", "positions"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", 131072),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b", 131072),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct", 32768),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3", 32768),
        ("Llama-2-7b-chat-hf", "llama-2-7b", 4096),
        ("qwen2.5-32b-INSTRUCT", "qwen2.5-32b-instruct", 32768),
    ],
)
def test_fine_tuned_models_have_the_shape_of_what_they_were_made_from(name, preset, positions):
    model = paged.model(name)
    assert (model.name, model.max_positions, model.parameters) == (preset, positions, PUBLISHED[preset])


def test_every_second_layer_of_gemma_2_has_a_window():
    full, sliding = paged.model("google/gemma-2-9b-it").groups
    assert (full.layers, full.window, sliding.layers, sliding.window) == (21, None, 21, 4096)


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-33B-Instruct", "llama-3.1-9b", "mixtral-8x22b", "gemma-2-7b-it"])
def test_a_suggestion_is_never_of_another_size(name):
    with pytest.raises(ValueError, match="unknown model") as info:
        paged.model(name)
    assert "did you mean" not in str(info.value)


def test_stories260k_has_what_its_checkpoint_holds():
    dim, hidden, layers, kv, vocab, seq, head = 64, 172, 5, 32, 512, 512, 8
    floats = vocab * dim + layers * (2 * dim + 2 * dim * dim + 2 * kv * dim + 3 * hidden * dim) + dim
    checkpoint = 7 * 4 + 4 * floats + 2 * 4 * seq * head // 2  # header, weights, two unused tables
    assert checkpoint == 1_056_540  # bytes of the published file
    model = paged.model("stories260k")
    assert model.parameters == floats
    assert (model.token_bytes, model.max_positions, model.query_heads) == (1280, 512, 8)


@pytest.mark.parametrize(
    ("published", "short", "token_bytes", "positions"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b", 512 << 10, 4096),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b", 128 << 10, 8192),
        ("meta-llama/Meta-Llama-3-70B", "llama-3-70b", 320 << 10, 8192),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b", 56 << 10, 131072),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b", 128 << 10, 32768),
        ("karpathy/tinyllamas", "stories260k", 1280, 512),
    ],
)
def test_each_preset_has_its_published_name(published, short, token_bytes, positions):
    model = paged.model(published)
    assert model == paged.model(short)
    assert (model.name, model.token_bytes, model.max_positions) == (short, token_bytes, positions)


def test_windows_of_the_presets():
    assert paged.model("mistral-7b").groups[0].window == 4096
    assert paged.model("qwen2.5-7b").groups[0].window is None  # use_sliding_window is false


@pytest.mark.parametrize("name", ["fp8", "fp8_e4m3"])
def test_e4m3_has_the_names_of_vllm(name):
    assert paged.model("llama-3-8b", name) == paged.model("llama-3-8b", "e4m3")


def test_kv_dtype_is_chosen_apart_from_the_weights():
    model = paged.model("llama-3-8b", "float32")
    assert (model.groups[0].dtype, model.dtype) == ("float32", "bfloat16")
    assert model.weight_bytes == 2 * PUBLISHED["llama-3-8b"]
    with pytest.raises(ValueError, match="'fp8_e5m2' is not supported yet"):
        paged.model("llama-3-8b", "fp8_e5m2")


@pytest.mark.parametrize(("typed", "meant"), [("llama3-8b", "llama-3-8b"), ("Mistral-7B-v0.4", "mistral-7b-v0.3")])
def test_an_unknown_model_gets_a_suggestion(typed, meant):
    with pytest.raises(
        ValueError, match=f"unknown model '{typed}'; did you mean '{meant}'.*known: llama-2-7b, "
    ) as info:
        paged.model(typed)
    assert "\n" not in str(info.value)


def test_a_config_is_read(config):
    model = paged.model(str(config(num_key_value_heads=2)))
    assert model.groups == (paged.KVSpec(4, 2, 64, "float16"),)
    assert (model.name, model.query_heads, model.max_positions) == (config().parent.name, 8, 2048)
    assert paged.from_config(config(num_key_value_heads=2).parent) == model  # the folder does as well


def test_a_config_without_kv_heads_or_with_its_own_head_dim(config):
    assert paged.from_config(config()).groups[0].kv_heads == 8
    assert paged.from_config(config(head_dim=96, dtype="float32", torch_dtype="absent")).groups[0] == paged.KVSpec(
        4, 8, 96, "float32"
    )


@pytest.mark.parametrize("key", [key for key in LLAMA if key not in ("torch_dtype",)] + ["torch_dtype"])
def test_a_missing_key_is_named(config, key):
    with pytest.raises(ValueError, match=f"config.json: key '{key}' is missing") as info:
        paged.from_config(config(**{key: "absent"}))
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": "four"}, "'num_hidden_layers' must be a whole number, not 'four'"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0"),
        ({"num_key_value_heads": -2}, "'num_key_value_heads' must be a whole number, not -2"),
        ({"hidden_size": 100}, "hidden_size 100 is no multiple of 8 heads; add 'head_dim'"),
        ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings' must be true or false, not 'yes'"),
        ({"torch_dtype": "int4"}, "torch_dtype 'int4' is unknown"),
        ({"layer_types": ["full_attention"]}, "'layer_types' must be a list of 4 names"),
        ({"layer_types": ["linear_attention"] * 4}, "layer type 'linear_attention' is not supported"),
        ({"layer_types": ["sliding_attention"] * 4}, "key 'sliding_window' is missing"),
    ],
)
def test_a_wrong_value_is_named(config, changes, message):
    with pytest.raises(ValueError, match=message):
        paged.from_config(config(**changes))


@pytest.mark.parametrize(
    ("content", "message"), [(b"{", "is not JSON"), (b"\xff\xfe", "is not JSON"), (b"[]", "a list")]
)
def test_a_file_that_is_no_config(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        paged.model(str(tmp_path))
    with pytest.raises(ValueError, match="No such file"):
        paged.from_config(tmp_path / "other.json")


def test_layers_of_two_kinds_become_two_groups(config):
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    full, sliding = paged.from_config(config(layer_types=kinds, sliding_window=256)).groups
    assert (full.layers, full.window, sliding.layers, sliding.window) == (1, None, 3, 256)


def test_sliding_windows_as_qwen2_writes_them(config):
    values = {"sliding_window": 256, "use_sliding_window": True, "max_window_layers": 3}
    full, sliding = paged.from_config(config(**values)).groups
    assert (full.layers, full.window, sliding.layers, sliding.window) == (3, None, 1, 256)
    assert len(paged.from_config(config(**values | {"use_sliding_window": False})).groups) == 1


def test_a_part_of_a_larger_config_is_found(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": LLAMA}))
    assert paged.from_config(tmp_path).groups[0].layers == 4


# total and active parameters that the authors publish (active ones rounded in their reports)
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "q_lora_rank": None,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "num_experts_per_tok": 6,
    "vocab_size": 102400,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}
GEMMA2_2B = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 256000,
}


@pytest.mark.parametrize(
    ("values", "total", "active"),
    [
        (DEEPSEEK_V2_LITE, 15_706_484_224, 2.7e9),
        (MIXTRAL, 46_702_792_704, 12.9e9),
        (QWEN3_8B, 8_190_735_360, 8.2e9),
        (GEMMA2_2B, 2_614_341_888, 2.6e9),
    ],
    ids=["deepseek-v2-lite", "mixtral-8x7b", "qwen3-8b", "gemma-2-2b"],
)
def test_other_architectures_have_their_published_count(values, total, active):
    found = count_parameters(Config(values, "config.json"))
    assert found.total == total
    assert found.active == pytest.approx(active, rel=0.02)


def test_latent_attention_keeps_one_latent_a_token(config):
    found = paged.from_config(config(**DEEPSEEK_V2_LITE))
    assert found.groups == (paged.KVSpec(27, 1, 512 + 64, "bfloat16", components=1),)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"torch_dtype": "float16", "hidden_size": ' + "9" * 400 + "}", "more than any model has"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_config_that_no_model_has_is_one_line(tmp_path, text, match):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=match) as caught:
        paged.from_config(path)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)
