"""The plan of the last step: the layers of a step share it, so that it is made, and copied to the device, once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from kernels_cu import DecodePlan, PagedKV, plan_decode
from kernels_cu.launches.decode_build import decode_build
from vmm import Device

from .options import AttentionOptions

Plan = TypeVar("Plan")

_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_last: weakref.WeakKeyDictionary[object, dict[str, tuple[Hashable, Any]]] = weakref.WeakKeyDictionary()


def last_plan(owner: object, kernel: str, key: Hashable, make: Callable[[], Plan]) -> Plan:
    """The plan that ``owner`` had last for ``kernel`` if it was made for ``key``, else what ``make`` gives.

    ``key`` must name the stream: what was copied in the order of one is not there for another.
    """
    plans = _last.setdefault(owner, {})
    found = plans.get(kernel)
    if found is None or found[0] != key:
        found = plans[kernel] = key, make()
    plan: Plan = found[1]
    return plan


def decode_work(
    owner: object, device: Device, kernel: str, kv: PagedKV, query: Any, lengths: Any, options: AttentionOptions
) -> tuple[DecodePlan, dict[str, Any]]:
    """A plan over ``lengths`` (on the host) for all multiprocessors of ``device``, where the kernels run, and the
    arrays for its partial results: what decode kernels of either kind need.
    """
    build = decode_build(kv.dtype, kv.head_dim, kv.layout, device.arch)
    shares = device.driver.device_attribute(device.ordinal, _MULTIPROCESSORS) * build.thread_blocks
    heads = (query.shape[1], kv.kv_heads)

    def make() -> DecodePlan:
        made = plan_decode(lengths, *heads, shares=shares, window=options.window)
        return made.on(lambda array: np.asarray(array, like=query))

    plan = last_plan(owner, kernel, (lengths.tobytes(), *heads, shares, options.window, options.stream), make)
    out, lse = (np.empty_like(query, np.float32, shape=shape) for shape in plan.partial_shapes(kv.head_dim))
    return plan, {"partial_out": out, "partial_lse": lse}
