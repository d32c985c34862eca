"""Refusal: what vLLM does not start with, however much memory there is."""

from __future__ import annotations

from .memory import Setting

ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"


def too_long(setting: Setting) -> str:
    """That more tokens are asked for than the model has positions, empty if it is not so."""
    asked, positions = setting.asked_len, setting.model.spec.max_positions
    if asked <= positions:
        return ""
    return f"max_model_len {asked:,} is more than the {positions:,} positions of {setting.model.spec.name}"


def lacks_bfloat16(setting: Setting) -> bool:
    """Whether the model computes in bfloat16, and the GPU has none."""
    return setting.model.dtype == "bfloat16" and not setting.gpu.has_bfloat16


def refusal(setting: Setting) -> str:
    """Why vLLM refuses to start, and what it would start with; empty if it does not.

    Source: ``_get_and_verify_max_len`` and the check of the type against the GPU's compute capability of vLLM.
    """
    if too_long(setting) and not setting.options.allow_long:
        positions = setting.model.spec.max_positions
        return f"{too_long(setting)}; --max-model-len {positions} would start, and so would {ALLOW_LONG}"
    if lacks_bfloat16(setting) and setting.options.dtype == "bfloat16":
        return f"--dtype bfloat16, and {setting.gpu.name} has no bfloat16; --dtype half would start"
    return ""
