"""Make a policy by its name, on a device, for a setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm import Device

from ..prompt_tokens import PromptTokens
from ..workload import Workload
from . import check_policy
from .contiguous_vmm import ContiguousVmm
from .grow_copy import GrowCopy
from .paged_prealloc import PagedPrealloc
from .paged_vmm import PagedVmm
from .policy import Policy
from .static import Static

if TYPE_CHECKING:
    from ..replay.setup import Setup


def make_policy(name: str, device: Device, setup: Setup, workload: Workload | None = None) -> Policy:
    """The policy called ``name`` within the setup's budget, for the prompts of ``workload`` if it caches prefixes.

    Raises ValueError for an unknown name.
    """
    check_policy(name)
    options, prompts = setup.options, None
    if options.prefix_cache and workload is not None and workload.hash_ids is not None:
        prompts = PromptTokens(workload.prompt.tolist(), workload.hash_ids)
    token_bytes, longest = setup.model.token_bytes, setup.limits.max_model_len
    if name == "static":
        return Static(device, setup.budget, token_bytes=token_bytes, max_model_len=longest)
    if name == "grow-copy":
        return GrowCopy(device, setup.budget, token_bytes=token_bytes, max_model_len=longest)
    if name == "paged-prealloc":
        return PagedPrealloc(device, setup.budget, setup.layout, prompts=prompts)
    if name == "paged-vmm":
        return PagedVmm(
            device,
            setup.budget,
            setup.layout,
            reserve=options.reserve,
            compact=options.compact,
            compact_blocks=options.compact_blocks,
            prompts=prompts,
        )
    return ContiguousVmm(
        device,
        setup.budget,
        setup.layout.spec,
        max_model_len=longest,
        max_num_seqs=setup.limits.max_num_seqs,
        order="token" if options.order == "block" else "layer",
        chunk=setup.layout.chunk,
    )
