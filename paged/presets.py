"""Published architectures by name: the values of each model's ``config.json`` that memory depends on.

Each preset stands for models whose ``config.json`` has the same of these values; a fine-tuned model that was published
with another context length is a preset of its own. The sums of the weights are those that the models' files hold.
"""

from __future__ import annotations

from typing import Any


def _preset(kind: str, sizes: tuple[int, ...], names: str, positions: int, **more: Any) -> dict[str, Any]:
    """``sizes`` are hidden, intermediate, layers, query heads, KV heads and vocabulary; ``names`` Hugging Face's."""
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {
        "published_as": tuple(names.split()),
        "model_type": kind,
        **dict(zip((*keys, "vocab_size"), sizes, strict=True)),
        "max_position_embeddings": positions,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **more,
    }


def _qwen2(sizes: tuple[int, ...], names: str, positions: int, window: int, **more: Any) -> dict[str, Any]:
    """Qwen2.5: a window is named and not used."""
    windows = {"sliding_window": window, "use_sliding_window": False, "max_window_layers": sizes[2]}
    return _preset("qwen2", sizes, names, positions, **windows, **more)


def _qwen3(sizes: tuple[int, ...], names: str, **more: Any) -> dict[str, Any]:
    """Qwen3, dense: heads of 128 whatever the hidden size."""
    return _preset("qwen3", sizes, names, 40960, head_dim=128, **more)


def _gemma2(sizes: tuple[int, ...], names: str, head_dim: int) -> dict[str, Any]:
    """Gemma 2: every second layer sees a window, the first one too."""
    kinds = ["sliding_attention", "full_attention"] * (sizes[2] // 2)
    windows = {"sliding_window": 4096, "layer_types": kinds}
    return _preset("gemma2", sizes, names, 8192, head_dim=head_dim, tie_word_embeddings=True, **windows)


_LONG, _TIED = 131072, {"tie_word_embeddings": True}

PRESETS: dict[str, dict[str, Any]] = {
    "llama-2-7b": _preset(
        "llama",
        (4096, 11008, 32, 32, 32, 32000),
        "meta-llama/Llama-2-7b-hf meta-llama/Llama-2-7b-chat-hf",
        4096,
        torch_dtype="float16",
    ),
    "llama-2-13b": _preset(
        "llama",
        (5120, 13824, 40, 40, 40, 32000),
        "meta-llama/Llama-2-13b-hf meta-llama/Llama-2-13b-chat-hf",
        4096,
        torch_dtype="float16",
    ),
    "llama-2-70b": _preset(
        "llama",
        (8192, 28672, 80, 64, 8, 32000),
        "meta-llama/Llama-2-70b-hf meta-llama/Llama-2-70b-chat-hf",
        4096,
        torch_dtype="float16",
    ),
    "llama-3-8b": _preset(
        "llama",
        (4096, 14336, 32, 32, 8, 128256),
        "meta-llama/Meta-Llama-3-8B meta-llama/Meta-Llama-3-8B-Instruct",
        8192,
    ),
    "llama-3-70b": _preset(
        "llama",
        (8192, 28672, 80, 64, 8, 128256),
        "meta-llama/Meta-Llama-3-70B meta-llama/Meta-Llama-3-70B-Instruct",
        8192,
    ),
    "llama-3.1-8b": _preset(
        "llama",
        (4096, 14336, 32, 32, 8, 128256),
        "meta-llama/Llama-3.1-8B meta-llama/Llama-3.1-8B-Instruct meta-llama/Meta-Llama-3.1-8B "
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        _LONG,
    ),
    "llama-3.1-70b": _preset(
        "llama",
        (8192, 28672, 80, 64, 8, 128256),
        "meta-llama/Llama-3.1-70B meta-llama/Llama-3.1-70B-Instruct meta-llama/Meta-Llama-3.1-70B "
        "meta-llama/Meta-Llama-3.1-70B-Instruct meta-llama/Llama-3.3-70B-Instruct",
        _LONG,
    ),
    "llama-3.2-1b": _preset(
        "llama",
        (2048, 8192, 16, 32, 8, 128256),
        "meta-llama/Llama-3.2-1B meta-llama/Llama-3.2-1B-Instruct",
        _LONG,
        **_TIED,
    ),
    "llama-3.2-3b": _preset(
        "llama",
        (3072, 8192, 28, 24, 8, 128256),
        "meta-llama/Llama-3.2-3B meta-llama/Llama-3.2-3B-Instruct",
        _LONG,
        **_TIED,
    ),
    "qwen2.5-0.5b": _qwen2(
        (896, 4864, 24, 14, 2, 151936), "Qwen/Qwen2.5-0.5B Qwen/Qwen2.5-0.5B-Instruct", 32768, 32768, **_TIED
    ),
    "qwen2.5-1.5b": _qwen2((1536, 8960, 28, 12, 2, 151936), "Qwen/Qwen2.5-1.5B", _LONG, _LONG, **_TIED),
    "qwen2.5-1.5b-instruct": _qwen2(
        (1536, 8960, 28, 12, 2, 151936), "Qwen/Qwen2.5-1.5B-Instruct", 32768, 32768, **_TIED
    ),
    "qwen2.5-3b": _qwen2(
        (2048, 11008, 36, 16, 2, 151936), "Qwen/Qwen2.5-3B Qwen/Qwen2.5-3B-Instruct", 32768, 32768, **_TIED
    ),
    "qwen2.5-7b": _qwen2((3584, 18944, 28, 28, 4, 152064), "Qwen/Qwen2.5-7B", _LONG, _LONG),
    "qwen2.5-7b-instruct": _qwen2((3584, 18944, 28, 28, 4, 152064), "Qwen/Qwen2.5-7B-Instruct", 32768, _LONG),
    "qwen2.5-14b": _qwen2((5120, 13824, 48, 40, 8, 152064), "Qwen/Qwen2.5-14B", _LONG, _LONG),
    "qwen2.5-14b-instruct": _qwen2((5120, 13824, 48, 40, 8, 152064), "Qwen/Qwen2.5-14B-Instruct", 32768, _LONG),
    "qwen2.5-32b": _qwen2((5120, 27648, 64, 40, 8, 152064), "Qwen/Qwen2.5-32B", _LONG, _LONG),
    "qwen2.5-32b-instruct": _qwen2((5120, 27648, 64, 40, 8, 152064), "Qwen/Qwen2.5-32B-Instruct", 32768, _LONG),
    "qwen2.5-72b": _qwen2((8192, 29568, 80, 64, 8, 152064), "Qwen/Qwen2.5-72B", _LONG, _LONG),
    "qwen2.5-72b-instruct": _qwen2((8192, 29568, 80, 64, 8, 152064), "Qwen/Qwen2.5-72B-Instruct", 32768, _LONG),
    "qwen3-0.6b": _qwen3((1024, 3072, 28, 16, 8, 151936), "Qwen/Qwen3-0.6B", **_TIED),
    "qwen3-1.7b": _qwen3((2048, 6144, 28, 16, 8, 151936), "Qwen/Qwen3-1.7B", **_TIED),
    "qwen3-4b": _qwen3((2560, 9728, 36, 32, 8, 151936), "Qwen/Qwen3-4B", **_TIED),
    "qwen3-8b": _qwen3((4096, 12288, 36, 32, 8, 151936), "Qwen/Qwen3-8B"),
    "qwen3-14b": _qwen3((5120, 17408, 40, 40, 8, 151936), "Qwen/Qwen3-14B"),
    "qwen3-32b": _qwen3((5120, 25600, 64, 64, 8, 151936), "Qwen/Qwen3-32B"),
    "mistral-7b": _preset(
        "mistral",
        (4096, 14336, 32, 32, 8, 32000),
        "mistralai/Mistral-7B-v0.1 mistralai/Mistral-7B-Instruct-v0.1",
        32768,
        sliding_window=4096,
    ),
    "mistral-7b-v0.2": _preset("mistral", (4096, 14336, 32, 32, 8, 32000), "mistralai/Mistral-7B-Instruct-v0.2", 32768),
    "mistral-7b-v0.3": _preset(
        "mistral",
        (4096, 14336, 32, 32, 8, 32768),
        "mistralai/Mistral-7B-v0.3 mistralai/Mistral-7B-Instruct-v0.3",
        32768,
    ),
    "mixtral-8x7b": _preset(
        "mixtral",
        (4096, 14336, 32, 32, 8, 32000),
        "mistralai/Mixtral-8x7B-v0.1 mistralai/Mixtral-8x7B-Instruct-v0.1",
        32768,
        num_local_experts=8,
        num_experts_per_tok=2,
    ),
    "gemma-2-2b-it": _gemma2((2304, 9216, 26, 8, 4, 256000), "google/gemma-2-2b-it", 256),
    "gemma-2-9b-it": _gemma2((3584, 14336, 42, 16, 8, 256000), "google/gemma-2-9b-it", 256),
    "gemma-2-27b-it": _gemma2((4608, 36864, 46, 32, 16, 256000), "google/gemma-2-27b-it", 128),
    "stories260k": _preset(
        "llama",
        (64, 172, 5, 8, 4, 512),
        "karpathy/tinyllamas",
        512,
        torch_dtype="float32",
        **_TIED,
    ),
}


def preset_of(name: str) -> str | None:
    """The preset that a name stands for: its own, or one on Hugging Face, with or without the owner; None if none does.

    Capitals make no difference.
    """
    return _names().get(name.lower())


def _names() -> dict[str, str]:
    """Every name of every preset, in small letters."""
    found = {name: name for name in PRESETS}
    for name, values in PRESETS.items():
        for long in values["published_as"]:
            found[long.lower()] = name
            found.setdefault(long.lower().rpartition("/")[2], name)
    return found
