"""SpanLayout: where K and V of a token lie when every sequence has a span of addresses of its own. Integers only.

order="layer": a span for K and for V of every layer, as vAttention lays them: every span starts on a chunk of its own,
so the smallest step is a chunk in each of them, 2 x layers chunks. A kernel for contiguous K and V works as it is.
order="token": one span over all layers, token after token [layers, K|V, Hkv, D]: the smallest step is one chunk, but K
of one layer lies ``token_bytes`` apart from token to token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vmm import Device, Size, Supply, format_size, parse_size, round_up

from .layout import K, check_place
from .spec import KVSpec
from .whole_number import whole_number

ORDERS = ("layer", "token")


@dataclass(frozen=True)
class SpanLayout:
    """Spans for ``max_sequences`` sequences of up to ``max_length`` tokens of ``spec``, in chunks of ``chunk`` bytes.

    ``planes`` is how many places a token has, ``unit`` its bytes in one, ``span_stride`` and ``plane_stride`` the bytes
    from span to span and from plane to plane. Raises ValueError for an unknown order or a count below 1.
    """

    spec: KVSpec
    max_length: int
    max_sequences: int
    order: str
    chunk: int
    planes: int = field(init=False)
    unit: int = field(init=False)
    span_stride: int = field(init=False)
    plane_stride: int = field(init=False)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order {self.order!r} is unknown; use 'layer' or 'token'")
        spec, set_field = self.spec, object.__setattr__
        for name in ("max_length", "max_sequences"):
            set_field(self, name, whole_number(name, getattr(self, name)))
        if self.max_length < 1 or self.max_sequences < 1:
            counts = f"max_length {self.max_length} and max_sequences {self.max_sequences}"
            raise ValueError(f"{counts} must be at least 1")
        set_field(self, "planes", spec.layers * spec.components if self.order == "layer" else 1)
        set_field(self, "unit", spec.token_bytes // self.planes)
        set_field(self, "span_stride", round_up(self.max_length * self.unit, self.chunk))
        set_field(self, "plane_stride", self.max_sequences * self.span_stride)

    @property
    def step_bytes(self) -> int:
        """The smallest growth of one sequence: a chunk in every plane."""
        return self.planes * self.chunk

    def steps(self, length: int) -> int:
        """Chunks in each plane that ``length`` tokens need."""
        return -(-length * self.unit // self.chunk)

    def room(self, length: int) -> int:
        """Tokens that the committed part of a span of ``length`` tokens has room for."""
        return min(self.max_length, self.steps(length) * self.chunk // self.unit)

    def chunks(self, index: int, before: int, after: int) -> list[int]:
        """Chunks ``before`` to ``after`` of span ``index`` in every plane, as chunks of the range."""
        first, plane = index * self.span_stride // self.chunk, self.plane_stride // self.chunk
        return [place * plane + first + step for place in range(self.planes) for step in range(before, after)]

    def plane_offset(self, layer: int, component: int = K) -> int:
        """Bytes from the range's base to K or V of the first token of a layer, were the first span open.

        Raises RangeError for a layer or component that is not there.
        """
        layer = check_place("layer", layer, self.spec.layers)
        component = check_place("component", component, self.spec.components)
        place = layer * self.spec.components + component
        return place * (self.plane_stride if self.order == "layer" else self.spec.component_token_bytes)

    def offset(self, index: int, token: int, layer: int, component: int, head: int, d: int) -> int:
        """Bytes from the range's base to one number of a token of span ``index``. Raises RangeError as above."""
        token = check_place("token", token, self.max_length)
        head = check_place("head", head, self.spec.kv_heads)
        d = check_place("d", d, self.spec.head_dim)
        start = self.plane_offset(layer, component) + index * self.span_stride + token * self.unit
        return start + (head * self.spec.head_dim + d) * self.spec.element_bytes


def chunk_of(device: Device, chunk: Size | None, supply: Supply | None) -> int:
    """Bytes of a chunk: the supply's, the one asked for, or the granularity."""
    if supply is not None:
        return supply.chunk_size
    return device.granularity if chunk is None else parse_size(chunk, name="chunk")


def steps_in(budget: Size, step: int) -> int:
    """How many of the smallest steps a budget holds. Raises ValueError if not one."""
    size = parse_size(budget, name="budget")
    if size < step:
        raise ValueError(f"budget {format_size(size)} holds no step of {format_size(step)}; give at least that")
    return size // step
