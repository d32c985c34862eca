"""Bytes of a quantized weight. Embedding and output stay in the model's type, as the usual checkpoints keep them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..config import Config

_GROUP = 128
"""Weights that share a scale where the configuration does not say."""

_FOUR_BITS = ("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round")
_EIGHT_BITS = ("fp8", "fbgemm_fp8", "ptpc_fp8", "modelopt", "tpu_int8", "experts_int8")
_NAMES = ("fp8", "awq", "gptq", "bitsandbytes", "compressed-tensors")


@dataclasses.dataclass(frozen=True)
class Quantization:
    """How the weights of linear layers are kept: ``bits`` a weight, scales and zeros included; None: as they are."""

    name: str | None
    bits: float | None

    def bytes_of(self, weights: float, element_bytes: int) -> int:
        """Bytes of so many weights."""
        return round(weights * (element_bytes * 8 if self.bits is None else self.bits) / 8)


def find_quantization(asked: str | None, config: Config) -> Quantization:
    """The method that is asked for, or the one of the configuration's "quantization_config".

    * fp8 and the like: 8 bits a weight (a scale a channel or a tensor is left out).
    * AWQ, GPTQ: b bits, and for each group of g weights a float16 scale and a zero of b bits: b + (16 + b)/g. Source:
      the tensors qweight, scales and qzeros of both formats; b and g from the configuration, else 4 and 128.
    * bitsandbytes: 4 bits and a float32 maximum for each 64 weights: 4.5. Source: its NF4 blocks.
    * compressed-tensors: num_bits of the first group of the configuration, with a float16 scale for each group_size.

    Raises ValueError for a method of which the bits are not known here.
    """
    own = config.values.get("quantization_config")
    own = own if isinstance(own, Mapping) else {}
    name = asked or own.get("quant_method")
    if name is None or name == "none":
        return Quantization(None, None)
    if name in _EIGHT_BITS:
        return Quantization(name, 8.0)
    if name in _FOUR_BITS:
        bits, group = _count(own, "bits", 4), _count(own, "group_size", _GROUP)
        return Quantization(name, bits + (16 + bits) / group)
    if name == "bitsandbytes":
        return Quantization(name, 8.0 if own.get("load_in_8bit") is True else 4.5)
    if name == "compressed-tensors":
        return Quantization(name, _compressed(own, config.source))
    known = ", ".join(_NAMES)
    raise ValueError(f"--quantization {name!r}: its bytes a weight are not known here; known: {known}, or none")


def _compressed(own: Mapping[str, Any], source: str) -> float:
    groups = own.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    bits = weights.get("num_bits") if isinstance(weights, Mapping) else None
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= 16:
        raise ValueError(
            f"{source}: compressed-tensors needs 'quantization_config' with config_groups and num_bits of the weights; "
            "give the config.json of the quantized model"
        )
    group = weights.get("group_size") if isinstance(weights, Mapping) else None
    return bits + (16 / group if isinstance(group, int) and group > 0 else 0)


def _count(own: Mapping[str, Any], key: str, default: int) -> int:
    found = own.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else default
