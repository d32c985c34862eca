"""GPUs by name: how much memory the driver reports, and what vLLM batches on such a GPU when it is told nothing."""

from __future__ import annotations

import dataclasses
import re

from vmm import parse_size
from vmm.shown import shown

_GIB = 1 << 30

GPUS = {
    "T4-16GB": 14.74,
    "V100-32GB": 31.73,
    "A10G-24GB": 22.06,
    "L4-24GB": 22.03,
    "RTX3090-24GB": 23.58,
    "RTX4090-24GB": 23.64,
    "RTX5090-32GB": 31.37,
    "A6000-48GB": 47.43,
    "L40S-48GB": 44.42,
    "A100-40GB": 39.38,
    "A100-80GB": 79.15,
    "H100-80GB": 79.18,
    "H100-NVL-94GB": 93.1,
    "H200-141GB": 139.8,
    "B200-180GB": 178.35,
}
"""GiB that PyTorch finds on a GPU, as the memory reports and out-of-memory errors of public server logs print them.

Less than the name says: the name counts in GB or before the driver's own share. They differ by some hundredths between
driver versions.
"""

NO_BFLOAT16 = ("T4-16GB", "V100-32GB")
"""Those of a compute capability below 8.0."""

_LARGE = 70 * _GIB
_FRACTION = re.compile(r"(\d{1,6}\.\d{1,9})\s*([KMGT]iB)", re.ASCII | re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU: its name, or its size as it was given, and its memory in bytes."""

    name: str
    memory: int

    @property
    def _is_large(self) -> bool:
        return self.memory >= _LARGE and not self.name.startswith("A100")

    @property
    def has_bfloat16(self) -> bool:
        """Whether it computes in bfloat16; one that is known by its size only is taken to."""
        return self.name not in NO_BFLOAT16

    @property
    def max_num_seqs(self) -> int:
        """What vLLM's API server takes when none is given: 1024 from 70 GiB up except on an A100, else 256.

        Source: ``EngineArgs.get_batch_defaults`` of vllm/engine/arg_utils.py.
        """
        return 1024 if self._is_large else 256

    @property
    def max_num_batched_tokens(self) -> int:
        """The same for tokens: 8192 from 70 GiB up except on an A100, else 2048 (same source)."""
        return 8192 if self._is_large else 2048


def find_gpu(name_or_size: str) -> Gpu:
    """The GPU of that name ("H100-80GB", "nvidia l40s"), or one with so much memory ("80 GiB", bytes).

    Raises ValueError, naming the known GPUs, for what is neither, and for a name that stands for several.
    """
    asked = _plain(name_or_size)
    near = [name for name in GPUS if asked and _plain(name).startswith(asked)]
    if len(near) == 1:
        return Gpu(near[0], int(GPUS[near[0]] * _GIB))
    if near:
        raise ValueError(f"GPU {name_or_size!r} comes in several sizes; write {' or '.join(near)}, or its bytes")
    if not asked[:1].isdigit():
        known = ", ".join(GPUS)
        raise ValueError(f"GPU {shown(name_or_size)} is not known; write its memory, such as '80 GiB', or {known}")
    return Gpu(name_or_size.strip(), _size(name_or_size))


def _size(text: str) -> int:
    """Bytes, rounded down: logs print "79.18 GiB", which is no whole number of them."""
    match = _FRACTION.fullmatch(text.strip())
    return int(float(match[1]) * parse_size(f"1 {match[2]}")) if match else parse_size(text, name="GPU memory")


def _plain(name: str) -> str:
    """A name without its maker, case, spaces and dashes."""
    return "".join(letter for letter in name.lower().removeprefix("nvidia") if letter.isalnum())
