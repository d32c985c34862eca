"""From a model's name or its ``config.json`` to a ModelSpec."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from .config import Config
from .parameters import count_parameters
from .presets import PRESETS, preset_of
from .spec import KVSpec, ModelSpec, check_dtype

_AS_VLLM_SAYS = {"fp8": "e4m3", "fp8_e4m3": "e4m3"}
"""vLLM's names of a KV type that has another here."""
_SIZE = re.compile(r"(?<![a-z0-9.])\d+(?:\.\d+)?(?:x\d+(?:\.\d+)?)?[bkm](?![a-z0-9])")
"""How a name says how many weights there are: 0.5b, 8x7b, 260k."""
_KINDS = ("full_attention", "sliding_attention")


class UnknownModelError(ValueError):
    """A name that is no preset and no file."""


def model(name_or_path: str, kv_dtype: str = "auto") -> ModelSpec:
    """Return the model that a preset's name, its Hugging Face name, or a path to a ``config.json`` stands for.

    ``kv_dtype`` is what K and V are kept in; "auto" is the model's own type. Raises UnknownModelError, naming the known
    models, for any other name, and ValueError for a path at which there is no file.

        >>> llama = model("llama-3-8b")
        >>> llama.layers, llama.token_bytes  # K and V of 32 layers, 8 heads of 128 numbers of 2 bytes
        (32, 131072)
        >>> model("meta-llama/Meta-Llama-3-8B-Instruct") == llama
        True
    """
    return spec_of(*find_config(name_or_path), kv_dtype)


def find_config(name_or_path: str) -> tuple[Config, str]:
    """The configuration of a preset or at a path, and the model's name. Raises as ``model`` does."""
    preset = preset_of(name_or_path)
    if preset is not None:
        return Config(PRESETS[preset], preset), preset
    if Path(name_or_path).exists():
        return _read(name_or_path)
    if name_or_path.endswith(".json") or name_or_path.startswith(("/", "./", "../", "~")):
        raise ValueError(f"{name_or_path}: there is no such file; give a model's config.json, or {', '.join(PRESETS)}")
    near = _near(name_or_path)
    hint = f"did you mean {near!r}? " if near else ""
    known = ", ".join(PRESETS)
    raise UnknownModelError(f"unknown model {name_or_path!r}; {hint}known: {known}, or the path of a config.json")


def _near(name: str) -> str | None:
    """The preset whose name is most like this one; of a name that says how large the model is, one of that size."""
    short = name.lower().rpartition("/")[2]
    size = _SIZE.findall(short)
    known = [preset for preset in PRESETS if not size or _SIZE.findall(preset) == size]
    return next(iter(difflib.get_close_matches(short, known, n=1, cutoff=0.75)), None)


def from_config(path: str | Path, kv_dtype: str = "auto") -> ModelSpec:
    """Return the model that a Hugging Face ``config.json`` (or the folder with it) describes.

    ``kv_dtype`` is what K and V are kept in; "auto" is the model's own type. Raises ValueError, naming the file, for
    one that cannot be read or describes a model whose cache is of no known kind.
    """
    return spec_of(*_read(path), kv_dtype)


def _read(path: str | Path) -> tuple[Config, str]:
    config = Config.read(path)
    return config, str(config.values.get("_name_or_path") or Path(config.source).resolve().parent.name)


def spec_of(config: Config, name: str, kv_dtype: str = "auto") -> ModelSpec:
    """The model of a configuration: its weights counted, its layers in uniform groups."""
    own = check_dtype(config.text("torch_dtype", "dtype"), f"{config.source}: torch_dtype")
    cached = own if kv_dtype == "auto" else check_dtype(_AS_VLLM_SAYS.get(kv_dtype, kv_dtype), "KV cache dtype")
    parameters = count_parameters(config)
    return ModelSpec(
        name=name,
        parameters=parameters.total,
        active_parameters=parameters.active,
        query_heads=config.query_heads,
        max_positions=config.count("max_position_embeddings"),
        groups=_groups(config, cached),
        dtype=own,
    )


def _groups(config: Config, dtype: str) -> tuple[KVSpec, ...]:
    """Layers that keep the same, together: those that see everything first, then those with a window."""
    windows = _windows(config)
    kinds = sorted(set(windows), key=lambda window: (window is not None, window or 0))
    return tuple(_group(config, windows.count(window), dtype, window) for window in kinds)


def _group(config: Config, layers: int, dtype: str, window: int | None) -> KVSpec:
    if config.has("kv_lora_rank"):  # one latent a token, shared by all heads, and the rotary part of the key
        latent = config.count("kv_lora_rank") + config.count("qk_rope_head_dim")
        return KVSpec(layers, 1, latent, dtype, components=1, window=window)
    return KVSpec(layers, config.kv_heads, config.head_dim, dtype, window=window)


def _windows(config: Config) -> list[int | None]:
    """The window of each layer, None for a layer that sees everything."""
    layers, window = config.count("num_hidden_layers"), config.optional("sliding_window")
    kinds = config.values.get("layer_types")
    if kinds is not None:
        return _listed_windows(config, kinds, layers)
    if not window or not config.flag("use_sliding_window", True):
        return [None] * layers
    full = config.optional("max_window_layers") or 0 if config.has("use_sliding_window") else 0
    return [None if layer < full else window for layer in range(layers)]


def _listed_windows(config: Config, kinds: object, layers: int) -> list[int | None]:
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise ValueError(f"{config.source}: key 'layer_types' must be a list of {layers} names, one a layer")
    wrong = next((kind for kind in kinds if kind not in _KINDS), None)
    if wrong is not None:
        raise ValueError(f"{config.source}: layer type {wrong!r} is not supported; known: {', '.join(_KINDS)}")
    return [config.count("sliding_window") if kind == "sliding_attention" else None for kind in kinds]
