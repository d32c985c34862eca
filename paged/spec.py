"""What a token costs: KVSpec is one uniform group of layers, ModelSpec a model as a list of such groups.

Everything here is counted in bytes and tokens; where they lie is for the layout to say.
"""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "e4m3": 1, "int8": 1}
"""The types that K and V can be kept in, with their size in bytes; e4m3 and int8 are kept divided by a scale."""

_LATER = ("fp8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "float8_e5m2")


def check_dtype(dtype: str, name: str = "dtype") -> str:
    """Return ``dtype`` if K and V can be kept in it; ValueError with the list of those that can."""
    if dtype in ELEMENT_BYTES:
        return dtype
    known = ", ".join(ELEMENT_BYTES)
    kind = "is not supported yet" if dtype in _LATER else "is unknown"
    raise ValueError(f"{name} {dtype!r} {kind}; use one of: {known}")


@dataclass(frozen=True, slots=True)
class KVSpec:
    """One group of layers that all keep the same K and V a token.

    ``components`` is 2 (K and V) or 1 (one latent vector, as multi-head latent attention keeps it: then ``kv_heads`` is
    1 and ``head_dim`` the latent's length). ``window`` is how many of the last tokens the layers look at; None is all.
    Raises ValueError for a count that is not positive or an unknown dtype.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str = "bfloat16"
    components: int = 2
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim"):
            _check_count(name, getattr(self, name))
        if self.window is not None:
            _check_count("window", self.window)
        if self.components not in (1, 2):
            raise ValueError(f"components must be 2 (K and V) or 1 (one latent), not {self.components!r}")
        check_dtype(self.dtype)

    @property
    def element_bytes(self) -> int:
        """Bytes of one number of K or V."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def array_dtype(self) -> str:
        """What arrays of its memory have as their type; the bits, uint8, for e4m3, which not every library knows."""
        return "uint8" if self.dtype == "e4m3" else self.dtype

    @property
    def component_token_bytes(self) -> int:
        """Bytes of K (or of V, or of the latent) of one token in one layer."""
        return self.kv_heads * self.head_dim * self.element_bytes

    @property
    def layer_token_bytes(self) -> int:
        """Bytes of one token in one layer."""
        return self.components * self.component_token_bytes

    @property
    def token_bytes(self) -> int:
        """Bytes of one token over all layers of the group."""
        return self.layers * self.layer_token_bytes

    def __str__(self) -> str:
        kind = "latent" if self.components == 1 else "K and V"
        seen = f", window {self.window}" if self.window else ""
        return f"{self.layers} layers x {kind} x {self.kv_heads} heads x {self.head_dim} {self.dtype}{seen}"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as memory sees it: how many weights it has, and what its layers keep a token.

    ``active_parameters`` are those that one token uses (fewer than ``parameters`` in a mixture of experts);
    ``max_positions`` the longest context. Layers that keep different things are different ``groups``, a pool each.
    Raises ValueError for a count below 1, and for a model without groups.
    """

    name: str
    parameters: int
    query_heads: int
    max_positions: int
    groups: tuple[KVSpec, ...]
    dtype: str = "bfloat16"
    active_parameters: int = 0

    def __post_init__(self) -> None:
        for name in ("parameters", "query_heads", "max_positions"):
            _check_count(name, getattr(self, name))
        if not self.groups:
            raise ValueError(f"model {self.name!r} has no layers; give at least one group")
        if not self.active_parameters:
            object.__setattr__(self, "active_parameters", self.parameters)

    @property
    def layers(self) -> int:
        """Layers of all groups."""
        return sum(group.layers for group in self.groups)

    @property
    def token_bytes(self) -> int:
        """Bytes of K and V of one token over all layers."""
        return sum(group.token_bytes for group in self.groups)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in the type that the model is published in."""
        return self.parameters * ELEMENT_BYTES[self.dtype]


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
