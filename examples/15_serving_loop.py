"""A serving loop under memory pressure: continuous batching, preemption, swap.

You will see requests come, decode together one token a step, and end, on a pool
that is too small for all of them. When the next step has no room, who came last
makes way: its blocks are copied to pinned host memory and given up, and it comes
back later with the same bytes. The tables of the batch lie where kernels run and
are patched there in the order of a stream, never rewritten. The output of every
step is compared with float64: no swap loses a byte.
"""

import sys
from collections import deque
from typing import Any

import numpy as np

import paged
import vmm
from kernels_cu import CompilerMissingError, reference
from paged import attention

SPEC = paged.KVSpec(layers=16, kv_heads=2, head_dim=64, dtype="float16")  # 8 KiB a token, 16 blocks a chunk
HEADS, LAYER, CHUNKS, MOST = 8, 7, 3, 8  # of which MOST is how many may decode together


class Request:
    """A prompt and an output of so many tokens. A model would compute K, V and queries; here they are drawn."""

    def __init__(self, number: int) -> None:
        draw = np.random.default_rng(number)
        self.prompt, self.left = map(int, draw.integers((30, 40), (160, 90)))
        tokens = self.prompt + self.left
        self.key, self.value = draw.standard_normal((2, tokens, SPEC.kv_heads, SPEC.head_dim)).astype("f2")
        self.query = draw.standard_normal((tokens, HEADS, SPEC.head_dim)).astype("f2")


class Server:
    """Who runs, in the order of admission, and who waits: to begin, or to come back from the host."""

    def __init__(self, pool: paged.KVPool, swap: paged.SwapSpace, requests: list[Request]) -> None:
        self.pool, self.swap, self.batch = pool, swap, paged.Batch(pool)
        self.tables = paged.DeviceTables(self.batch, MOST, max_blocks=32)
        self.running = dict[paged.Sequence, Request]()
        self.waiting = deque[tuple[Request, paged.Swapped | None]]((request, None) for request in requests)
        self.swaps, self.patches, self.worst = 0, 0, 0.0

    def admit(self) -> None:
        """Let in who waits while there is room, for a prompt and one token more."""
        while self.waiting and len(self.batch) < MOST:
            request, swapped = self.waiting[0]
            blocks = swapped.blocks if swapped else request.prompt // self.pool.layout.block_size + 1
            if not self.pool.can_allocate(blocks):
                return
            sequence = self.swap.restore(swapped) if swapped else self.pool.sequence()
            if not swapped:
                self.append(sequence.append(request.prompt), request.key, request.value)
            self.waiting.popleft()
            self.running[sequence] = request
            self.batch.add(sequence)

    def append(self, slots: Any, key: Any, value: Any) -> None:
        """Write K and V of as many tokens as there are slots."""
        key, value = (self.there(array[: len(slots)]) for array in (key, value))
        attention.append(self.pool, LAYER, key, value, slots)

    def there(self, array: Any) -> Any:
        """An array where kernels run: NumPy's or CuPy's."""
        return np.asarray(array, like=self.tables.lengths)

    def make_room(self) -> None:
        """Swap out who came last until every other can have one more token."""
        while not self.batch.can_append():
            sequence, request = self.running.popitem()
            self.batch.remove(sequence)
            self.waiting.appendleft((request, self.swap.put(sequence)))
            self.swaps += 1

    def decode(self) -> None:
        """One more token of each request in the batch."""
        self.batch.append()
        self.patches += self.tables.update()
        requests, lengths = [self.running[sequence] for sequence in self.batch], self.batch.lengths.tolist()
        parts = zip(*((one.key, one.value, one.query) for one in requests), strict=True)
        key, value, query = (
            np.stack([array[length - 1] for array, length in zip(arrays, lengths, strict=True)]) for arrays in parts
        )
        self.append(self.tables.slots[: len(requests)], key, value)
        out = attention.decode(self.pool, LAYER, self.there(query), self.tables)
        self.pool.device.synchronize()
        keys = [one.key[:length] for one, length in zip(requests, lengths, strict=True)]
        values = [one.value[:length] for one, length in zip(requests, lengths, strict=True)]
        error = (out.get() if hasattr(out, "get") else out) - reference.paged_attention(query, keys, values)
        self.worst = max(self.worst, float(np.nan_to_num(np.abs(error), nan=np.inf).max()))

    def finish(self) -> None:
        """Free who has all of its output."""
        for sequence, request in list(self.running.items()):
            request.left -= 1
            if not request.left:
                del self.running[sequence]
                self.batch.remove(sequence)
                sequence.free()


def main() -> None:
    print(__doc__)
    requests = [Request(number) for number in range(16)]
    with vmm.Device(0) as device:
        print(f"{device}\n")
        layout = paged.KVLayout(SPEC, chunk=device.granularity)
        with (
            paged.KVPool(device, layout, budget=CHUNKS * layout.row_bytes) as pool,
            paged.SwapSpace(device, "8 MiB") as swap,
        ):
            server, step = Server(pool, swap, requests), 0
            print(f"{'step':>6}{'running':>9}{'waiting':>9}{'live':>12}{'committed':>12}{'on the host':>14}")
            with server.tables:
                while server.waiting or server.running:
                    server.admit()
                    server.make_room()
                    server.decode()
                    if step % 25 == 0:
                        live, committed, host = map(vmm.format_size, (pool.live, pool.committed, swap.used))
                        print(f"{step:>6}{len(server.running):>9}{len(server.waiting):>9}", end="")
                        print(f"{live:>12}{committed:>12}{host:>14}")
                    server.finish()
                    step += 1
            assert server.swaps, "the pool was large enough: nothing was shown"
            assert pool.live == swap.used == 0, "a sequence is still there"
    print(f"\n{step} steps, {server.swaps} swaps, {server.patches} entries of tables patched")
    print(f"the largest error against float64 in any step: {server.worst:.1e}")
    if not server.worst < 2e-3:
        sys.exit("a request lost its bytes")


if __name__ == "__main__":
    try:
        main()
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
