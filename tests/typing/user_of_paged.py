"""A user's program over paged: every public name, as its type is meant to be used. It runs, and mypy reads it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import paged
import paged.attention
import paged.picture
import vmm
from paged.export import FORMATS, export
from paged.page import write_page
from paged.policies import CAUSES, POLICIES, Policy, Usage, check_policy
from paged.recording import PoolRecorder, Recording, RecordingError, record
from paged.replay import Run, load_workload, load_workloads, replay, report_of, run_all, run_policy

SPEC = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")
LAYOUT = paged.KVLayout(SPEC, block_size=16)


def models(folder: Path) -> paged.ModelSpec:
    known: paged.ModelSpec = paged.model(next(iter(paged.PRESETS)))
    try:
        return paged.from_config(folder / "config.json")
    except ValueError:
        return known


def integers() -> NDArray[np.int64]:
    rows: paged.Rows = LAYOUT.rows(100)
    ids = paged.BlockPool(rows)
    choice: paged.Choice = ids.choose(3)
    table = ids.take(choice)
    assert paged.locate(37, [7, 42, 9, 103], 16) == (9, 5)
    tables, lengths = paged.batch_tables([table]), paged.batch_lengths([40])
    assert tables.shape == (1, 3) and lengths.tolist() == [40]
    return paged.slots_of(table, 0, 40, 16)


def serving(device: vmm.Device) -> str:
    with paged.KVPool(device, LAYOUT, budget="16 MiB", prefix_cache=True) as pool:
        first: paged.Sequence = pool.sequence(np.arange(40))
        slots: NDArray[np.int64] = first.append(40 - first.length)
        batch = paged.Batch(pool, [first, first.fork()])
        with_tables = paged.DeviceTables(batch, max_sequences=4, max_blocks=64)
        batch.append()
        with_tables.update()
        with_tables.close()
        short: paged.Shortage | None = pool.shortage(2000)
        swap = paged.SwapSpace(device, "8 MiB")
        away: paged.Swapped = swap.put(first)
        swap.restore(away).free()
        listed = pool.sequence([1, 2, 3])
        listed.append(np.array([1, 2, 3], np.int32))
        swap.close()
        return short.lines()[0] if short and len(slots) else ""


def spans(device: vmm.Device) -> int:
    with paged.ContiguousKV(device, SPEC, max_length=1024, max_sequences=4) as kv:
        span: paged.Span = kv.open()
        span.append(100)
        return kv.live


def several_groups(device: vmm.Device) -> int:
    with paged.ModelPool(device, [SPEC, SPEC], budget="32 MiB") as model:
        sequence: paged.ModelSequence = model.sequence()
        sequence.append(20)
        return model.live


def attention(device: vmm.Device) -> float:
    """Needs a compiler for the kernels on a CPU."""
    rng = np.random.default_rng(0)
    key, value = rng.standard_normal((2, 20, 2, 64)).astype(np.float16)
    query = rng.standard_normal((20, 4, 64)).astype(np.float16)
    with paged.KVPool(device, LAYOUT, budget="16 MiB") as pool, paged.ContiguousKV(device, SPEC, 64, 1) as kv:
        sequence, span = pool.sequence(), kv.open()
        paged.attention.append(pool, 0, key, value, sequence.append(20))
        whole = paged.attention.prefill(pool, 0, query, [sequence], [20])
        last = paged.attention.decode(pool, 0, query[-1:], [sequence])
        span.append(20)
        paged.span_attention.append(kv, 0, key, value, [span], [20])
        same = paged.span_attention.decode(kv, 0, query[-1:], [span])
        kept, _ = paged.attention.gather(pool, 0, sequence)
        kept_too, _ = paged.span_attention.gather(kv, 0, span)
        assert (kept == kept_too).all()
        return float(np.abs(whole[-1:] - last).max() + np.abs(same - last).max())


def two_processes(device: vmm.Device) -> int:
    """Both sides in one process: a pool's memory shared, and attached again."""
    with (
        vmm.ChunkSupply(device, exportable=True) as supply,
        paged.KVPool(device, LAYOUT, blocks=8, supply=supply) as pool,
    ):
        sequence = pool.sequence()
        sequence.append(20)
        told: str = paged.Handoff.of(pool, [sequence]).to_json()
        handoff: paged.Handoff = paged.Handoff.from_json(told)
        with vmm.sharing.Exporter(pool.range, handoff.chunks) as exporter:
            memory = vmm.sharing.attach(device, exporter.path)
        with memory:
            kv = paged.AttachedKV(memory, handoff)
            return int(kv.lengths.sum())


def attached(kv: paged.AttachedKV, query: NDArray[np.float16], lse: NDArray[np.float32]) -> float:
    """Needs a compiler too."""
    return float(paged.attached_attention.decode(kv, 0, query, [0], lse=lse).sum())


def pictures(device: vmm.Device, folder: Path) -> paged.picture.Spending:
    with paged.KVPool(device, LAYOUT, budget="16 MiB") as pool:
        pool.sequence().append(40)
        seen: paged.picture.Picture = paged.picture.picture_of(pool)
        tables: paged.picture.Tables = seen.tables
        assert tables.counts.tolist() == [3] and seen.bytes_in(paged.picture.ChunkState.COMMITTED) == seen.committed
        assert len(paged.picture.BlockKind) > 2
        paged.picture.draw(seen, folder / "pool.png")
        paged.picture.show(seen)
        assert paged.picture.plain_text(seen)
        return paged.picture.spending_of(seen)


def recordings(device: vmm.Device, folder: Path) -> set[str]:
    with paged.KVPool(device, LAYOUT, budget="16 MiB") as pool:
        recorder: PoolRecorder
        with record(pool, model="small") as recorder:
            pool.sequence().append(40)
        recorder.recording().save(folder / "run.pagewalk")
    try:
        found: Recording = Recording.load(folder / "run.pagewalk")
    except RecordingError as error:
        raise SystemExit(str(error)) from None
    write_page(found, folder / "run.html")
    export(found, "csv", folder / "run.csv")
    return set(FORMATS)


class Nothing:
    """What a policy of one's own begins with: its name and the memory it takes."""

    def usage(self) -> Usage:
        return Usage(reserved=0, committed=0, held=0)


def used_by(policy: Policy) -> int:
    return policy.usage().committed


def traces(folder: Path) -> paged.Report:
    lengths = folder / "lengths.csv"
    lengths.write_text("num_prefill_tokens,num_decode_tokens\n100,20\n50,10\n")
    trace: paged.Workload = paged.read_trace(lengths)
    name: str = check_policy(POLICIES[-1])
    assert len(CAUSES) > 1 and Nothing().usage().committed == 0
    report: paged.Report = paged.replay(trace, policies=(name,))
    assert replay(trace, policies=(name,)).requests == report.requests
    return report


def by_hand(run: Run) -> paged.Report:
    """What ``replay`` does, step by step."""
    one = {name: run_policy(run, name) for name in POLICIES}
    return report_of(run, one or run_all(run))


def workloads() -> int:
    from paged.replay.options import Options

    options = Options(limit=10)
    return len(load_workload(None, options).prompt) + sum(len(each.prompt) for each in load_workloads(None, options))


def main() -> None:
    device = vmm.Device(driver=vmm.HostDriver(memory="256 MiB"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert models(folder).layers
        assert len(integers()) == 40
        assert "blocks" in serving(device)
        assert two_processes(device) == 20
        assert spans(device) == 100 * SPEC.token_bytes
        assert several_groups(device) == 2 * 20 * SPEC.token_bytes
        assert pictures(device, folder).live == 40 * SPEC.token_bytes
        assert "csv" in recordings(device, folder)
        assert traces(folder).requests == 2
        assert workloads() == 20
    device.close()


if __name__ == "__main__":
    main()
