"""The model that a log's server served, as far as its architecture is known here."""

from __future__ import annotations

import dataclasses
import math

from ..models import model as find_model
from ..spec import ModelSpec
from .server_run import ServerRun

_MOST_GPUS = 4096
_EIGHT_BIT = ("fp8", "fp8_e4m3", "fp8_e5m2", "e4m3", "int8")


@dataclasses.dataclass(frozen=True)
class ServerModel:
    """A model and the type of its KV cache; ``why_not`` says what to do where the architecture is not known."""

    name: str | None
    spec: ModelSpec | None
    kv_dtype: str
    gpus: int
    why_not: str = ""


def server_model(run: ServerRun, named: str | None = None) -> ServerModel:
    """Find the model: the one ``named`` (a preset, a Hugging Face name, a config.json), else the log's.

    Raises ValueError only for one that was named and is not known.
    """
    asked = run.options.get("kv_cache_dtype", "auto")
    dtype = "e4m3" if asked in _EIGHT_BIT else asked
    gpus = _gpus(run)
    if named is not None:
        return ServerModel(named, find_model(named, dtype), dtype, gpus)
    name = run.options.get("model")
    if name is None:
        return ServerModel(None, None, dtype, gpus, "the log names no model; give --model")
    try:
        return ServerModel(name, find_model(name, dtype), dtype, gpus)
    except (ValueError, OSError):
        return ServerModel(
            name, None, dtype, gpus, f"{name} is not known here; give --model the path of its config.json"
        )


def _gpus(run: ServerRun) -> int:
    """GPUs that share one copy of the model."""
    sizes = [run.number(name) or 1 for name in ("tensor_parallel_size", "pipeline_parallel_size")]
    return math.prod(sizes) if max(sizes) <= _MOST_GPUS else 1
