"""The verdict of a replay: what was not served, and one sentence that says what to conclude from the rest."""

from __future__ import annotations

from vmm import format_size

from .report import PolicyResult, Report

_FEW = 0.01
"""Rejected requests above this part of all are told again in the conclusion."""


def rejections(report: Report) -> str | None:
    """Which requests nobody served, and which option changes that; None if there are none."""
    told = [*_too_long(report), *_never_fit(report)]
    return f"warning: {' '.join(told)}" if told else None


def _too_long(report: Report) -> list[str]:
    too_long = max(result.too_long for result in report.policies.values())
    if not too_long:
        return []
    limit = report.options["max_model_len"]
    return [
        f"{too_long:,} of {report.requests:,} requests ({too_long / report.requests:.1%}) are longer than "
        f"max-model-len {limit:,} and were rejected; --max-model-len or another --model changes that."
    ]


def _never_fit(report: Report) -> list[str]:
    return [
        f"{name} rejected {result.never_fits:,} of {report.requests:,} requests, each more than its budget can hold."
        for name, result in report.policies.items()
        if result.never_fits
    ]


def conclusion(report: Report) -> str:
    """Who served more in the same memory and why, or who needed less of it to serve the same; what a cache found."""
    served = {name: result for name, result in report.policies.items() if result.committed_over_live}
    if not served:
        return "No policy served a request: every one was rejected; give a longer --max-model-len or more memory."
    return " ".join([*_few_served(report), _compared(report, served), *_found(served)])


def _few_served(report: Report) -> list[str]:
    """How many were served, where that is not nearly all."""
    counts = {name: result.completed for name, result in report.policies.items()}
    least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if report.requests - counts[least] <= _FEW * report.requests:
        return []
    if counts[least] == counts[most]:
        return [f"Only {counts[least]:,} of {report.requests:,} requests were served."]
    return [
        f"Only {counts[least]:,} ({least}) to {counts[most]:,} ({most}) of {report.requests:,} requests were served."
    ]


def _compared(report: Report, served: dict[str, PolicyResult]) -> str:
    rates = {name: result.tokens_per_s for name, result in served.items()}
    ratios = {name: result.committed_over_kept or 0.0 for name, result in served.items()}
    unit = "byte that is live or a cached prefix" if any(result.prefix for result in served.values()) else "live byte"
    slow = min(rates, key=rates.__getitem__)
    fast = min((name for name in rates if rates[name] >= 0.99 * max(rates.values())), key=ratios.__getitem__)
    if rates[fast] > 1.02 * rates[slow]:
        return (
            f"In the same {format_size(report.budget)} {fast} completed {rates[fast] / rates[slow]:.2f} times the "
            f"tokens per second of {slow}: it kept {ratios[fast]:.2f} bytes committed for each {unit}, {slow} "
            f"{ratios[slow]:.2f}; its driver calls would take {_share(served[fast])} of the time."
        )
    lean, heavy = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    if lean == heavy:
        return f"{lean} kept {ratios[lean]:.2f} bytes committed for each {unit}."
    return (
        f"All served the same {rates[slow]:,.0f} tokens/s; for each {unit} {lean} kept {ratios[lean]:.2f} bytes "
        f"committed and {heavy} {ratios[heavy]:.2f}, at their peaks {format_size(served[lean].committed.peak)} and "
        f"{format_size(served[heavy].committed.peak)}; the driver calls of {lean} would take {_share(served[lean])} of "
        "the time."
    )


def _share(result: PolicyResult) -> str:
    return f"{result.driver_s / (result.duration_s or 1.0):.1%}"


def _found(served: dict[str, PolicyResult]) -> list[str]:
    """What the prefix cache saved."""
    return [
        f"The prefix cache of {name} found {result.prefix.hit_tokens:,} of {result.prefix.asked_tokens:,} prompt "
        f"tokens ({result.prefix.token_rate:.1%}), which were not computed again."
        for name, result in served.items()
        if result.prefix
    ]
