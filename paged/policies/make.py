"""Make a policy by its name, on a device, for a setup."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from vmm import ChunkSupply, Device, Share

from ..serving.prompt_tokens import PromptTokens
from ..serving.workload import Workload
from . import check_policy
from .contiguous_vmm import ContiguousVmm
from .grow_copy import GrowCopy
from .paged_prealloc import PagedPrealloc
from .paged_vmm import PagedVmm
from .policy import Policy
from .static import Static

if TYPE_CHECKING:
    from ..replay.setup import Setup


def make_policies(
    name: str, device: Device, setup: Setup, workloads: Sequence[Workload], stack: ExitStack
) -> list[Policy]:
    """One policy a model of ``setup``, closed with ``stack``; of several, all within the budget.

    Under paged-vmm they draw from one supply, each as much as it needs; else each has an equal part.
    """
    members, supply = setup.members, None
    if len(members) > 1 and name == "paged-vmm":
        supply = stack.enter_context(ChunkSupply(device, setup.layout.chunk, budget=setup.budget))
    elif len(members) > 1:
        members = tuple(dataclasses.replace(one, budget=setup.budget // len(members)) for one in members)
    found = []
    for number, (member, workload) in enumerate(zip(members, workloads, strict=True)):
        share = stack.enter_context(supply.share(f"{member.model.name} {number}")) if supply else None
        found.append(stack.enter_context(closing(make_policy(name, device, member, workload, share))))
    return found


def make_policy(
    name: str, device: Device, setup: Setup, workload: Workload | None = None, share: Share | None = None
) -> Policy:
    """The policy called ``name`` within the setup's budget, for the prompts of ``workload`` if it caches prefixes.

    paged-vmm takes its memory from ``share`` if there is one.

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
            share=share,
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
