"""What mapped memory in reserve buys: driver time against committed over live, over --reserve, as a table and a plot.

    python benchmarks/reserve_curve.py azure_conv_2023.csv [--order block layer] [--chunk 8MiB] [--compact 1.1]
        [--reserve 0 0.05 0.2] [--rate-scale 1] [--limit 2000] [--plot reserve_curve.png] [--json]

Each value is a whole replay of paged-vmm on the host driver: llama-3-8b, 80 GiB, driver time by the published costs. A
fraction of 0.05 keeps a twentieth of the rows in use mapped beyond them. Without a trace a workload is made.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from paged import Workload
from paged.atomic_file import check_writable, write_atomically
from paged.replay import load_workload, replay
from paged.replay.options import Options

LINE = (
    "reserve {reserve:<6g} committed/live {committed_over_live:.4f}  "
    "driver time {driver_share:.3%}  copied/written {copied_share:.2%}"
)
STYLES = ("o-C0", "s--C1")
RESERVES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def measure(workload: Workload, options: dict[str, Any], reserve: float) -> dict[str, float]:
    """One replay, and what it is about."""
    found = replay(workload, driver="host", policies=("paged-vmm",), reserve=reserve, **options).policies["paged-vmm"]
    return {
        "reserve": reserve,
        "committed_over_live": found.committed_over_live or 0.0,
        "driver_share": found.driver_s / found.duration_s,
        "driver_s": found.driver_s,
        "copied_share": found.copied_share,
    }


def draw(curves: dict[str, list[dict[str, float]]], title: str, path: Path) -> None:
    """Driver time against committed over live, a line for each order, each point with its reserve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (order, points), style in zip(curves.items(), STYLES, strict=False):
        ratios = [point["committed_over_live"] for point in points]
        shares = [100 * point["driver_share"] for point in points]
        axes.plot(ratios, shares, style, label=f"order {order}")
        for point, ratio, share in zip(points, ratios, shares, strict=True):
            label = f"{point['reserve']:g}"
            axes.annotate(label, (ratio, share), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.legend()
    axes.margins(x=0.08, y=0.1)
    axes.set_xlabel("committed over live, mean")
    axes.set_ylabel("driver time, % of simulated time")
    axes.set_ylim(bottom=0)
    axes.grid(linewidth=0.3)
    axes.set_title(title, fontsize=9)
    write_atomically(path, lambda out: figure.savefig(out, format=path.suffix[1:].lower() or "png", dpi=150))


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--order", choices=("block", "layer"), nargs="+", default=["block"])
    parser.add_argument("--chunk")
    parser.add_argument("--compact", type=float)
    parser.add_argument("--rate-scale", type=float, default=1.0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--reserve", type=float, nargs="+", default=list(RESERVES), metavar="FRACTION")
    parser.add_argument("--plot", type=Path, default=Path("reserve_curve.png"))
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    asked = parser.parse_args()
    check_writable(asked.plot)
    options = {name: getattr(asked, name) for name in ("chunk", "compact")}
    workload = load_workload(asked.trace, Options(rate_scale=asked.rate_scale, limit=asked.limit))
    curves: dict[str, list[dict[str, float]]] = {order: [] for order in asked.order}
    for order, points in curves.items():
        for reserve in asked.reserve:
            points.append(measure(workload, {"order": order, **options}, reserve))
            if not asked.as_json:
                print(f"order {order}  " + LINE.format(**points[-1]), flush=True)
    name = Path(workload.name).name
    draw(curves, f"{name}, chunk {asked.chunk or '2MiB'}: by --reserve", asked.plot)
    if asked.as_json:
        print(json.dumps({"schema": 1, "trace": name, **options, "curves": curves}, indent=2))
    else:
        print(f"The picture is in {asked.plot}.")


if __name__ == "__main__":
    main()
