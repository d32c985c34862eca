"""A model whose layers do not all keep the same: a pool a group, on one budget.

You will see a model of which five layers in six look at the last tokens only, as
many of today's do. Each group of layers has a pool and block tables of its own. As
a sequence grows, the full layers keep every token; what the windowed ones will
never see again is dropped, and its memory goes to whoever needs it. Beside it, what
one pool for all layers would hold. Attention in both groups is compared with
float64, over all tokens in the one and over the window in the other.
"""

import sys
from typing import Any

import numpy as np

import paged
import vmm
from kernels_cu import CompilerMissingError, reference
from paged import attention

WINDOW, PART, PARTS, HEADS = 256, 128, 12, 4
FULL = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")
WINDOWED = paged.KVSpec(layers=10, kv_heads=2, head_dim=64, dtype="float16", window=WINDOW)


class Group:
    """One layer of one group: what a model would compute there is drawn."""

    def __init__(self, pool: paged.KVPool, part: paged.Sequence, seed: int) -> None:
        self.pool, self.part, draw = pool, part, np.random.default_rng(seed)
        self.key, self.value = draw.standard_normal((2, PARTS * PART, 2, 64)).astype("f2")
        self.query = draw.standard_normal((PARTS * PART, HEADS, 64)).astype("f2")

    def there(self, array: Any) -> Any:
        """An array where kernels run: NumPy's or CuPy's."""
        return np.asarray(array, like=self.pool.range.array("float16", 0))

    def compute(self, slots: Any) -> float:
        """Append the newest tokens' K and V, and decode the last of them; the error."""
        stop, start = self.part.length, self.part.length - len(slots)
        attention.append(self.pool, 0, self.there(self.key[start:stop]), self.there(self.value[start:stop]), slots)
        query = self.query[stop - 1 : stop]
        out = attention.decode(self.pool, 0, self.there(query), [self.part])
        self.pool.device.synchronize()
        seen = slice(max(0, stop - (self.pool.layout.spec.window or stop)), stop)
        expected = reference.paged_attention(query, [self.key[seen]], [self.value[seen]])
        return float(np.abs((out.get() if hasattr(out, "get") else out) - expected).max())


def main() -> None:
    print(__doc__)
    worst = 0.0
    with vmm.Device(0) as device, paged.ModelPool(device, [FULL, WINDOWED], budget="64 MiB") as model:
        print(f"{device}\n")
        print(f"{'tokens':>8}{'2 full layers':>16}{'10 windowed':>14}{'together':>12}{'all in one pool':>18}")
        sequence = model.sequence()
        groups = [Group(*one) for one in zip(model.pools, sequence.parts, (0, 1), strict=True)]
        for _ in range(PARTS):
            slots = sequence.append(PART)  # in both groups or in none; the window moves on
            worst = max(worst, *(group.compute(new) for group, new in zip(groups, slots, strict=True)))
            live, whole = (
                [pool.live for pool in model.pools],
                sequence.length * (FULL.token_bytes + WINDOWED.token_bytes),
            )
            sizes = map(vmm.format_size, (*live, sum(live), whole))
            print("{:>8,}{:>16}{:>14}{:>12}{:>18}".format(sequence.length, *sizes))
            assert live[0] == sequence.length * FULL.token_bytes, "a full layer has lost a token"
            assert live[1] <= (WINDOW + PART + 16) * WINDOWED.token_bytes, "the window keeps more than it sees"
        dropped, table = sequence.parts[1].dropped, sequence.parts[1].table
        print(f"\nthe windowed table names no block for the first {dropped:,} tokens: {table[:3]} ... {table[-3:]}")
        assert dropped > 0 and sequence.parts[0].dropped == 0
        model.check()
        sequence.free()
    print(f"the largest error against float64: {worst:.1e}")
    if not worst < 2e-3:
        sys.exit("error: a group did not attend to what its layers see")


if __name__ == "__main__":
    try:
        main()
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
