"""Config: typed access to the values of a Hugging Face ``config.json``; every error names the key and the source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST = 10**9
"""A count of a configuration beyond this is taken for a mistake."""


class Config:
    """The values of one configuration; ``source`` names it in errors.

    A model of several parts (images and text) keeps the language model's values under "text_config".
    """

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        inner = values.get("text_config")
        self.values: Mapping[str, Any] = {**values, **inner} if isinstance(inner, Mapping) else values
        self.source = source

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """Read a ``config.json``, or the one in a folder. Raises ValueError when it is not a JSON object."""
        file = Path(path)
        file = file / "config.json" if file.is_dir() else file
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"cannot read {file}: {error.strerror}; give a model's config.json") from None
        except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested without end
            raise ValueError(f"{file} is not JSON: {error}; give a model's config.json") from None
        if not isinstance(values, dict):
            raise ValueError(f"{file} holds a {type(values).__name__}, not an object; give a model's config.json")
        return cls(values, str(file))

    @property
    def model_type(self) -> str:
        """The architecture's name, "llama" where none is given."""
        return str(self.values.get("model_type") or "llama")

    @property
    def query_heads(self) -> int:
        """Query heads of a layer."""
        return self.count("num_attention_heads")

    @property
    def kv_heads(self) -> int:
        """KV heads of a layer; as many as query heads where the key is absent."""
        return self.optional("num_key_value_heads") or self.query_heads

    @property
    def head_dim(self) -> int:
        """Size of a head: the key, or hidden size over query heads."""
        found = self.optional("head_dim")
        if found:
            return found
        hidden, heads = self.count("hidden_size"), self.query_heads
        if hidden % heads:
            raise ValueError(f"{self.source}: hidden_size {hidden} is no multiple of {heads} heads; add 'head_dim'")
        return hidden // heads

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def count(self, key: str) -> int:
        """A whole number of at least 1 that must be there."""
        found = self.optional(key)
        if not found:
            state = "is missing" if found is None else f"is {found}"
            raise ValueError(f"{self.source}: key {key!r} {state}; a model's config.json must have it, at least 1")
        return found

    def optional(self, key: str) -> int | None:
        """A whole number of at least 0, or None where the key is absent or null."""
        found = self.values.get(key)
        if found is None:
            return None
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise ValueError(f"{self.source}: key {key!r} must be a whole number, not {found!r}")
        if found > MOST:
            digits = len(str(found))
            raise ValueError(f"{self.source}: {key!r} has {digits} digits, more than any model has; at most {MOST:,}")
        return found

    def first_count(self, *keys: str) -> int | None:
        """The first of ``keys`` that is there."""
        return next((self.optional(key) for key in keys if self.has(key)), None)

    def flag(self, key: str, default: bool) -> bool:
        """A true or false value."""
        found = self.values.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise ValueError(f"{self.source}: key {key!r} must be true or false, not {found!r}")
        return found

    def text(self, *keys: str) -> str:
        """The first of ``keys`` that is there, as text."""
        found = next((self.values[key] for key in keys if self.has(key)), None)
        if not isinstance(found, str):
            raise ValueError(f"{self.source}: key {keys[0]!r} is missing or no text: {found!r}")
        return found
