"""Make a policy by its name, on a device, for a setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm import Device

from . import check_policy
from .contiguous_vmm import ContiguousVmm
from .grow_copy import GrowCopy
from .paged_prealloc import PagedPrealloc
from .paged_vmm import PagedVmm
from .policy import Policy
from .static import Static

if TYPE_CHECKING:
    from ..replay.setup import Setup


def make_policy(name: str, device: Device, setup: Setup) -> Policy:
    """The policy called ``name`` within the setup's budget. Raises ValueError for an unknown name."""
    check_policy(name)
    token_bytes, longest = setup.model.token_bytes, setup.limits.max_model_len
    if name == "static":
        return Static(device, setup.budget, token_bytes=token_bytes, max_model_len=longest)
    if name == "grow-copy":
        return GrowCopy(device, setup.budget, token_bytes=token_bytes, max_model_len=longest)
    if name == "paged-prealloc":
        return PagedPrealloc(device, setup.budget, setup.layout)
    if name == "paged-vmm":
        return PagedVmm(device, setup.budget, setup.layout, reserve=setup.options.reserve)
    return ContiguousVmm(
        device,
        setup.budget,
        setup.layout.spec,
        max_model_len=longest,
        max_num_seqs=setup.limits.max_num_seqs,
        order="token" if setup.options.order == "block" else "layer",
        chunk=setup.layout.chunk,
    )
