"""paged-prealloc: blocks in a pool whose whole budget is committed at the start, as serving systems do today."""

from __future__ import annotations

from vmm import Device

from ..layout import KVLayout
from ..serving.prompt_tokens import PromptTokens
from .paged_pool import PagedPool


class PagedPrealloc(PagedPool):
    """A pool that never commits or decommits anything after its beginning."""

    def __init__(self, device: Device, budget: int, layout: KVLayout, *, prompts: PromptTokens | None = None) -> None:
        super().__init__(device, budget, layout, prealloc=True, prompts=prompts)
