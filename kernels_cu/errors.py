"""The errors of kernels_cu. Each text is one line with the value and what to do."""

from __future__ import annotations


class KernelError(Exception):
    """Root of every error that kernels_cu raises."""


class CompilerMissingError(KernelError):
    """Nothing on this machine can compile the kernels; the text says how to get a compiler."""


class CompileError(KernelError):
    """The compiler refused a kernel, or what it made cannot be loaded."""


class LaunchError(KernelError, ValueError):
    """An argument of a launch has the wrong type, shape, value or place."""


class KernelFault(KernelError):  # noqa: N818 - the hardware's word
    """A kernel read or wrote where it must not: ``address``, and ``write`` for a write."""

    def __init__(self, address: int, write: bool) -> None:
        self.address, self.write = address, write
        verb, allowed = ("wrote", "writable") if write else ("read", "readable")
        super().__init__(
            f"a kernel {verb} address {address:#x}, which is not {allowed} memory; "
            "check the base, the strides and the ids in the block table"
        )
