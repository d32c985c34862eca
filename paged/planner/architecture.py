"""Architecture: a model's configuration cut into what one GPU holds, layer by layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..config import Config
from ..models import find_config, spec_of
from ..parameters import count_parameters
from ..spec import ELEMENT_BYTES, ModelSpec

_DTYPES = {"half": "float16", "float": "float32"}
_KV_DTYPES = {"fp8": "e4m3", "fp8_e4m3": "e4m3", "fp8_e5m2": "e4m3"}
"""Other names of a type, or of one as wide: a plan counts bytes."""


_SCALED_ALREADY = ("su", "longrope", "llama3", "default", None)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A model as a plan needs it. ``dtype`` is what it computes in, ``spec`` its layers and weights."""

    config: Config
    spec: ModelSpec
    kv_dtype: str

    @property
    def dtype(self) -> str:
        """What the model computes in, and what weights that are not quantized are kept in."""
        return self.spec.dtype

    @property
    def element_bytes(self) -> int:
        """Bytes of one number of an activation."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def hidden(self) -> int:
        """Numbers that pass from layer to layer for each token."""
        return self.config.count("hidden_size")

    @property
    def vocabulary(self) -> int:
        """Tokens that a logit is computed for."""
        return self.config.count("vocab_size")

    @property
    def is_latent(self) -> bool:
        """Whether the layers keep one latent a token (multi-head latent attention)."""
        return self.config.has("kv_lora_rank")

    @cached_property
    def is_tied(self) -> bool:
        """Whether the output uses the embedding's weights.

        A model of n layers has P(n) = ends + n * layer, so that 2*P(1) - P(2) are its ends: V*h + h if they are tied.
        """
        plain = {"first_k_dense_replace": 0, "layer_types": None}
        one = count_parameters(_changed(self.config, num_hidden_layers=1, **plain)).total
        two = count_parameters(_changed(self.config, num_hidden_layers=2, **plain)).total
        return 2 * one - two == (self.vocabulary + 1) * self.hidden

    @property
    def ends(self) -> int:
        """Weights outside the layers: embedding, output unless tied, last norm."""
        return (self.vocabulary * (1 if self.is_tied else 2) + 1) * self.hidden

    def part(self, first: int, last: int) -> Architecture:
        """The same model with layers ``first`` up to (not with) ``last`` only."""
        config = self.config
        dense, full = config.optional("first_k_dense_replace"), config.optional("max_window_layers")
        kinds = config.values.get("layer_types")
        part = _changed(
            config,
            num_hidden_layers=last - first,
            first_k_dense_replace=dense and min(max(dense - first, 0), last - first),
            max_window_layers=full and max(full - first, 0),
            layer_types=kinds[first:last] if isinstance(kinds, list) else kinds,
        )
        return Architecture(part, spec_of(part, self.spec.name, self.kv_dtype), self.kv_dtype)


def find_architecture(name_or_path: str, dtype: str = "auto", kv_cache_dtype: str = "auto") -> Architecture:
    """The model of that name or path, computed in ``dtype``, with K and V in ``kv_cache_dtype``.

    "auto" is the model's own type, and float16 for a float32 model, as vLLM's --dtype says. Raises ValueError for an
    unknown model and for a type that is not known.
    """
    config, name = find_config(name_or_path)
    chosen = _dtype(dtype, spec_of(config, name).dtype)
    config = _changed(config, torch_dtype=chosen, max_position_embeddings=_positions(config))
    kv_dtype = _KV_DTYPES.get(kv_cache_dtype, kv_cache_dtype)
    return Architecture(config, spec_of(config, name, kv_dtype), kv_dtype)


def _positions(config: Config) -> int:
    """Positions that the model was made for, with its rotary embedding scaled as the configuration says.

    Those of "max_position_embeddings" times the factor; for YaRN those of "original_max_position_embeddings"; as they
    are where they count the scaling already. Source: ``_get_and_verify_max_len`` of vLLM.
    """
    positions, scaling = config.count("max_position_embeddings"), config.values.get("rope_scaling")
    if not isinstance(scaling, Mapping) or "gemma3" in config.model_type:
        return positions
    kind, factor = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
    if kind in _SCALED_ALREADY or not isinstance(factor, (int, float)) or not factor >= 1:
        return positions
    before = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
    return int((before if isinstance(before, int) else positions) * min(factor, 1e4))


def _dtype(asked: str, own: str) -> str:
    if asked == "auto":
        return "float16" if own == "float32" else own
    chosen = _DTYPES.get(asked, asked)
    if chosen not in ("float16", "bfloat16", "float32"):
        raise ValueError(f"--dtype {asked!r} is unknown; use auto, half, float16, bfloat16, float or float32")
    return chosen


def _changed(config: Config, **values: Any) -> Config:
    return Config({**config.values, "text_config": None, **values}, config.source)
