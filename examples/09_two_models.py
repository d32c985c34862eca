"""Two models on one budget: memory flows to the one that is busy.

You will see two KV pools share one supply of chunks. Each has a floor that the
other leaves alone; above the floors memory goes to whoever asks, up to a ceiling.
When the chat model is done its cached prefixes stay, until the code model needs
that memory and takes it. What somebody works with is never taken: then the answer
is "not now", with the reason. The bars show what each pool has committed.
"""

import numpy as np

import paged
import vmm

MIB = 1 << 20
BUDGET, FLOOR = 64 * MIB, 16 * MIB
SPEC = paged.KVSpec(layers=16, kv_heads=8, head_dim=128, dtype="float16")  # 64 KiB a token, 1 MiB a block


def show(step: str, supply: vmm.ChunkSupply) -> None:
    """A bar for each model, "-" for memory in use that it could spare."""
    print(f"\n{step}")
    for one in supply.holders():
        if one.name in ("chat", "code"):
            busy, spare = (one.in_use - one.spare) // (2 * MIB), one.spare // (2 * MIB)
            print(f"  {one.name} |{'#' * busy + '-' * spare:<{BUDGET // (2 * MIB)}}| {one}")
    total = sum(one.in_use for one in supply.holders())
    assert total <= BUDGET, "more than the budget is in use"


def fill(pool: paged.KVPool, tokens: int, first_id: int = 0) -> list[paged.Sequence]:
    """Sequences of 128 tokens with ids of their own, until there are ``tokens`` or there is no more room."""
    made = []
    for number in range(tokens // 128):
        ids = np.arange(first_id + 1000 * number, first_id + 1000 * number + 128, dtype=np.int32)
        if not pool.can_allocate(128 // pool.layout.block_size):
            break
        made.append(pool.sequence(ids))
        made[-1].append(128 - made[-1].length)
    return made


def main() -> None:
    print(__doc__)
    with vmm.Device(0) as device, vmm.ChunkSupply(device, budget=BUDGET) as supply:
        print(device)
        layout = paged.KVLayout(SPEC, 16, chunk=device.granularity)
        with (
            supply.share("chat", floor=FLOOR, ceiling=BUDGET - FLOOR) as for_chat,
            supply.share("code", floor=FLOOR) as for_code,
            paged.KVPool(device, layout, supply=for_chat, prefix_cache=True, name="chat") as chat,
            paged.KVPool(device, layout, supply=for_code, prefix_cache=True, name="code") as code,
        ):
            talks = fill(chat, 10_000)
            show("1. Chat is busy: it grows to its ceiling, and code's floor is still there", supply)
            assert chat.committed == BUDGET - FLOOR

            sources = fill(code, 10_000)
            show("2. Code begins: it has its floor, and no more while chat works", supply)
            assert code.committed == FLOOR, "code did not get its floor, or more than that"
            lack = code.shortage(1)
            assert lack is not None, "there was room all the same"
            print("  one more block for code? Not now:")
            print("\n".join(f"    {line}" for line in lack.lines()))

            for talk in talks:
                talk.free()
            show("3. Chat's sequences end: their blocks are only cached now (-)", supply)
            assert chat.committed == BUDGET - FLOOR and chat.blocks_idle

            sources += fill(code, 10_000, first_id=1_000_000)
            device.synchronize()
            show("4. Code goes on: what chat only caches goes to it, but for chat's floor", supply)
            assert code.committed == BUDGET - FLOOR and chat.committed == FLOOR

            last = 1000 * (len(talks) - 1)
            again = chat.sequence(np.arange(last, last + 128, dtype=np.int32))
            print(f"  chat's last prompt comes again: {again.length} of its 128 tokens are still known")
            assert again.length > 0, "chat's floor did not keep its newest prefix"
            again.free()

            for source in sources:
                source.free()
            chat.check()
            code.check()
    print("\nOne budget, two models, and no memory that waits for a model that does not.")


if __name__ == "__main__":
    main()
