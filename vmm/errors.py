"""The errors of vmm, by what a caller can do about them.

``VmmError`` is the root. ``DriverError`` is a refused driver call, ``OutOfMemoryError`` one that may work later or with
less, ``ClosedError`` and ``StateError`` a wrong order of calls, and the ``ValueError`` kinds a wrong argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .shortage.report import Shortage

OUT_OF_MEMORY = 2
"""The driver's code CUDA_ERROR_OUT_OF_MEMORY."""


class VmmError(Exception):
    """Root of every error that vmm raises. Its text is one line with the numbers and what to do.

    ``report`` says why there is not so much as was asked, where that is what went wrong; it prints as five lines.
    """

    report: Shortage | None = None

    def add(self, where: str) -> None:
        """Append where it happened, known only further up, to the text."""
        self.args = (f"{self}; {where}",)


class DriverError(VmmError):
    """A driver call was refused: ``call`` is its name, ``code`` the CUresult, ``call_args`` what was passed,
    ``hint`` what else is known.
    """

    def __init__(self, call: str, code: int, name: str, call_args: tuple[object, ...] = (), hint: str = "") -> None:
        self.call, self.code, self.name, self.call_args = call, code, name, call_args
        self.hint = hint
        shown = ", ".join(_show(a) for a in call_args)
        super().__init__(f"{call}({shown}) failed: {name} ({code})" + (f"; {hint}" if hint else ""))


class ReleaseError(DriverError):
    """The driver refused a call that only gives something back: a handle, addresses, an event, a context.

    The operation that raises it has done everything else, and is not undone.
    """


class OutOfMemoryError(VmmError, MemoryError):
    """Physical memory, a budget or the address space is exhausted; the message says which, how much, and what to do.

    ``report`` has all that is known then: see ``vmm.Shortage``.
    """

    report: Shortage

    def __init__(self, text: str, report: Shortage) -> None:
        super().__init__(text)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.report)


class DriverMissingError(VmmError):
    """The driver that was asked for is not on this machine, or cannot be used."""


class ClosedError(VmmError):
    """The object was closed before this use."""


class StateError(VmmError):
    """The object is in a state in which this is not allowed: still in use, pinned, viewed, already committed."""


class SharingError(VmmError):
    """Memory cannot be shared with another process: it is gone, silent, not allowed, or speaks something else."""


class SizeError(VmmError, ValueError):
    """Not a size, or not one that is allowed here."""


class AlignmentError(VmmError, ValueError):
    """A size or an address that must be a multiple of something and is not."""


class RangeError(VmmError, ValueError):
    """Outside the range that it must lie in."""


def _show(argument: object) -> str:
    """An argument of a call as an engineer reads it: large integers in hex."""
    if isinstance(argument, int) and not isinstance(argument, bool):
        return hex(argument) if argument >= 1 << 16 else str(int(argument))
    return str(argument)
