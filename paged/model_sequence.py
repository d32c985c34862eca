"""ModelSequence: the tokens of one request in every group of a model."""

from __future__ import annotations

import contextlib
import logging
import operator
from typing import TYPE_CHECKING

from vmm import After, OutOfMemoryError, Shortage, Stream, VmmError
from vmm.finishing import Finishing
from vmm.uninterrupted import uninterrupted

from .append_undo import AppendUndo
from .growth import blocks_for
from .prefix.known_tokens import TokenIds, as_ids
from .sequence import Sequence
from .shortage.groups import group_shortage
from .tables.block_table import Slots
from .whole_number import more_tokens, whole_number

if TYPE_CHECKING:
    from .model_pool import ModelPool

_log = logging.getLogger("pagewalk")


class ModelSequence:
    """One ``Sequence`` a group, ``parts``, in the order of the groups. Made by ``ModelPool.sequence`` and ``fork``."""

    __slots__ = ("model", "parts")

    def __init__(self, model: ModelPool, parts: list[Sequence]) -> None:
        self.model, self.parts = model, parts

    def __repr__(self) -> str:
        return f"ModelSequence({self.length} tokens in {len(self.parts)} groups of {self.model.name!r})"

    @property
    def length(self) -> int:
        """Tokens."""
        return self.parts[0].length

    def can_append(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens can be had in every group now. Raises RangeError for a negative number."""
        tokens = more_tokens(tokens)
        return self.model.plan([_blocks_for(part, tokens) for part in self.parts]) is not None

    def shortage(self, tokens: int) -> Shortage | None:
        """Why ``tokens`` more tokens are not to be had in every group; None where they are. See ``vmm.Shortage``."""
        tokens = whole_number("tokens", tokens)
        return group_shortage(self.model, [_blocks_for(part, tokens) for part in self.parts])

    @uninterrupted
    def append(self, tokens: int | TokenIds, *, stream: Stream = 0) -> list[Slots]:
        """Make room for more tokens in every group, and return their slots, int64 [tokens] a group.

        What a group's window will never show again goes then, behind the work on ``stream``: the new tokens' queries
        see the last ``window`` tokens up to themselves. What the driver refuses to unmap once a group has dropped
        something stays, and goes with a later append. Raises OutOfMemoryError when one group has not enough; nothing
        has changed in any then.
        """
        ids = as_ids(tokens)
        count = len(ids) if ids is not None else operator.index(tokens)  # type: ignore[arg-type]  # it says so itself
        needs = [_blocks_for(part, count) for part in self.parts]
        drops = self.model.plan(needs)
        if drops is None:
            wanted = ", ".join(
                f"{need} of {part.pool.range.name!r}, which alone could have {part.pool.blocks_free}"
                for need, part in zip(needs, self.parts, strict=True)
            )
            report = group_shortage(self.model, needs)
            assert report is not None, "there is no plan"
            raise OutOfMemoryError(f"blocks asked: {wanted}; not all of them can be had; {report.advice()}", report)
        start = self.length
        with Finishing() as rest, contextlib.ExitStack() as undo:
            self.model.drop_idle(drops)
            slots = []
            for part in self.parts:
                undo.callback(AppendUndo(part).undo, stream)
                slots.append(part.append(tokens, stream=stream))
            self._leave_windows(start, stream, rest)
            undo.pop_all()
        return slots

    @uninterrupted
    def fork(self) -> ModelSequence:
        """A second sequence with the same tokens, which shares every block in every group."""
        with contextlib.ExitStack() as undo:
            parts: list[Sequence] = []
            for part in self.parts:
                parts.append(part.fork())
                undo.callback(parts[-1].free)
            undo.pop_all()
        return self.model.adopt(parts)

    def publish(self) -> None:
        """Let later prompts find the whole blocks whose token ids are known, in every group."""
        for part in self.parts:
            part.publish()

    @uninterrupted
    def free(self, *, after: After = None) -> None:
        """Give up every block in every group. Freeing twice does nothing.

        Where the driver refuses to unmap in one group, that group still has its blocks, and the others gave theirs up:
        free again.
        """
        refused: VmmError | None = None
        with Finishing() as rest:
            for part in self.parts:
                try:
                    rest.run(part.free, after=after)
                except VmmError as error:  # the others can go all the same
                    refused = refused or error
            if refused is not None:
                raise refused
            self.model.forget(self)

    def _leave_windows(self, start: int, stream: Stream, rest: Finishing) -> None:
        """Drop what no query from token ``start`` on can see. It costs nothing where nothing goes."""
        left = False  # whether some group has: then there is no way back, and the next append asks again
        for part in self.parts:
            window = part.pool.layout.spec.window
            if window is not None and start >= window:
                try:
                    rest.run(part.drop_before, start - window + 1, after=stream)
                    left = True
                except VmmError as error:
                    if not left:
                        raise  # nothing has gone yet, and the append is undone
                    _log.warning("tokens outside the window of %s stay for now: %s", part.pool.range.name, error)


def _blocks_for(part: Sequence, tokens: int) -> int:
    """Blocks that ``tokens`` more tokens take in one group, the copy of a shared last block included."""
    part.check_in(part.pool)
    return blocks_for(part, tokens)
