"""Workspace: what a server's process takes on the GPU outside PyTorch's allocator. An estimate."""

from __future__ import annotations

_ALONE = 143_000_000
_TOGETHER = 580_000_000


def estimate_workspace(gpus: int) -> int:
    """Bytes on each of ``gpus`` GPUs that work together: context, libraries' workspaces and, from two up, NCCL.

    143 MB alone and 580 MB together: 0.13 to 0.16 GiB and 0.54 to 0.55 GiB are what vLLM's logs call non-torch memory
    on an H100 with one GPU and with two. More than two are not measured here.
    """
    return _ALONE if gpus == 1 else _TOGETHER
