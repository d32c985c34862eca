"""Replay requests on real memory, and compare our figures with the system's.

You will see four ways to manage the KV cache of an 8B model serve the same requests
in a KV budget of about 0.8 GiB. For each: the virtual bytes it reserved, the
physical bytes it committed, the bytes of tokens that existed, and how often the
system disagrees: what the operating system counts behind the host driver, or
cuMemGetInfo on a GPU. The picture physical_vs_virtual.png shows all over time.
Takes some ten seconds on a laptop.
"""

import math

import vmm
from paged.replay import replay
from paged.replay.chart import plot

POLICIES = ("static", "paged-prealloc", "paged-vmm", "contiguous-vmm")
PICTURE = "physical_vs_virtual.png"


def main() -> None:
    print(__doc__)
    report = replay(
        None,  # no trace: requests with published lengths are made, the same for one seed
        model="llama-3-8b",
        gpu_memory="17.75 GiB",  # 90 % of it, less 15 GiB of weights, leaves the budget
        activation_memory="256 MiB",
        max_model_len=4096,
        max_num_seqs=64,
        limit=30,
        rate=2.0,
        policies=POLICIES,
        backing="memory",
        measure=True,
    )
    print(f"driver {report.driver}, device {report.device}, backing {report.backing}")
    print(f"{report.requests} requests of {report.model} in a budget of {vmm.format_size(report.budget)}\n")
    print(f"{'mean over time':<18}{'reserved':>12}{'committed':>12}{'live':>12}{'committed/live':>16}{'disagree':>10}")

    for name, result in report.policies.items():
        committed, measured = result.timeline.series("committed"), result.timeline.series("measured")
        # The system is asked at the end of each bucket of time: its answer must lie between the least and the greatest
        # number of bytes that we had committed in that bucket. (At the end of the last, all has been given back.)
        wrong = ((measured.low < committed.low) | (measured.high > committed.high))[:-1].sum()
        means = (result.reserved.mean, result.committed.mean, result.live.mean)
        ratio = result.committed_over_live or math.nan
        print(f"{name:<18}" + "".join(f"{vmm.format_size(mean):>12}" for mean in means) + f"{ratio:>16.2f}{wrong:>10}")
        assert math.isfinite(measured.mean.sum()), "the system was not asked"
        assert not wrong, f"{name}: the system disagrees in {wrong} of {len(result.timeline)} buckets"
        assert result.completed + result.rejected == report.requests, "a request was lost"

    plot(report, PICTURE)
    ours, fixed = report.policies["paged-vmm"], report.policies["static"]
    assert ours.committed.mean < fixed.committed.mean, "growing on demand should need less"
    print(f"\nThe system agrees with every figure. The picture is in {PICTURE}.")


if __name__ == "__main__":
    main()
