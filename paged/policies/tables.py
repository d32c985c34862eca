"""Tables: which blocks each request holds. Either bare lists, or sequences of the pool, whose blocks can be shared and
moved.

Bare lists cost least, and are enough where a block stays where it is and belongs to one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..pool import KVPool
from ..sequence import Sequence
from ..serving.prompt_tokens import PromptTokens


class Tables(Protocol):
    """The blocks of every request that runs. It is true while one does."""

    def __len__(self) -> int: ...

    def recall(self, request: int) -> int:
        """Open a request with the blocks of its prompt that are known, and return how many tokens they hold."""
        ...

    def blocks(self, request: int) -> int:
        """How many blocks a request holds."""
        ...

    def held(self) -> Mapping[int, int]:
        """Blocks that come free with each request, where the pool does not know it as a sequence of its own."""
        ...

    def extend(self, request: int, tokens: int) -> int:
        """Open the request if it is new; let it hold blocks for ``tokens`` tokens, and return how many it holds."""
        ...

    def free(self, request: int) -> None:
        """Give the request's blocks back."""
        ...


class BareTables:
    """Lists of block ids, by request."""

    def __init__(self, pool: KVPool) -> None:
        self._pool, self._size = pool, pool.layout.block_size
        self.lists: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.lists)

    def recall(self, request: int) -> int:  # noqa: ARG002
        """Nothing is known."""
        return 0

    def blocks(self, request: int) -> int:
        """How many blocks a request holds."""
        return len(self.lists[request])

    def held(self) -> dict[int, int]:
        """Each request's, for nobody shares them."""
        return {request: len(table) for request, table in self.lists.items()}

    def extend(self, request: int, tokens: int) -> int:
        """Take the blocks that are missing."""
        table = self.lists.setdefault(request, [])
        table += self._pool.allocate(-(-tokens // self._size) - len(table))
        return len(table)

    def free(self, request: int) -> None:
        """Give the request's blocks back."""
        self._pool.free(self.lists.pop(request))


class SequenceTables:
    """Sequences of the pool. ``prompts`` gives the token ids of a request's prompt, where there are any."""

    def __init__(self, pool: KVPool, prompts: PromptTokens | None = None) -> None:
        self._pool, self._size, self._prompts = pool, pool.layout.block_size, prompts
        self._sequences: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def recall(self, request: int) -> int:
        """Begin with the prompt's known prefix."""
        if self._prompts is None:
            return 0
        made = self._sequences[request] = self._pool.sequence(self._prompts(request))
        self._prompts.note(request, made.length)
        return made.length

    def held(self) -> dict[int, int]:
        """None: they are sequences of the pool."""
        return {}

    def blocks(self, request: int) -> int:
        """How many blocks a request holds: all that its tokens need."""
        return -(-self._sequences[request].length // self._size)

    def extend(self, request: int, tokens: int) -> int:
        """Append the tokens that are missing; what is written of the prompt can be found from now on."""
        found = self._sequences.get(request)
        if found is None:
            found = self._sequences[request] = self._pool.sequence()
        found.append(tokens - found.length)
        if self._prompts is not None:
            found.publish()
        return self.blocks(request)

    def free(self, request: int) -> None:
        """Give the request's blocks back."""
        self._sequences.pop(request).free()
