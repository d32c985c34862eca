"""A vLLM server's command line, as it is pasted: what it says of memory, and what of it was not understood.

Any of these, with whatever stands before it (settings of the environment, a launcher) and with `=` or a space between
an option and its value:

    python -m vllm.entrypoints.openai.api_server --model NAME --max-num-seqs 128
    vllm serve NAME --max-num-seqs=128
    docker run --gpus all vllm/vllm-openai:latest --model NAME
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import shlex
from collections.abc import Sequence

from .options import FLAGS, NOT_VLLM, READERS

_VALUES = {f"--{name.replace('_', '-')}": name for name in READERS if name not in NOT_VLLM}
_SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-q": "--quantization"}
_SWITCHES = {f"--{name.replace('_', '-')}": name for name in FLAGS if name not in NOT_VLLM}
_SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-\d[\d.]*")
_ENDS = ("&&", "||", "|", ";", "&", ">", ">>", "2>", "<")
_VALUELESS = re.compile(
    r"--(?:enable|disable|no|use|skip|return|allow)-.*|--(?:trust-remote-code|async-scheduling|headless)"
)
"""Options of vLLM that are not read here and take no value; any other takes the word after it."""

_SECRET = re.compile(r"key|token|secret|password")

COUNTS = re.compile(
    r"--(?:enable-lora|max-loras|max-lora-rank|lora-modules|speculative-.*|num-speculative-tokens|data-parallel-.*"
    r"|limit-mm-per-prompt|hf-overrides|compilation-config.*|cudagraph-.*|enable-expert-parallel|swap-space|config"
    r"|no-enable-chunked-prefill|decode-context-parallel-size|cpu-offload-.*|kv-transfer-config)|-dp|-ep|-O.*|-cc.*"
)
"""Options that are not read here although memory may depend on them."""


@dataclasses.dataclass(frozen=True)
class ServerLine:
    """What a pasted line says: ``options`` as text by field name, ``ignored`` words, ``notes`` on what was decided."""

    options: dict[str, str | bool]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]


def read_server_line(words: Sequence[str]) -> ServerLine:
    """Read a line that a shell has split into ``words``, or that is one word with blanks.

    Raises ValueError for quotes without end, for a line that starts no vLLM server, and for an option without a value.
    """
    if len(words) == 1 and any(letter.isspace() for letter in words[0]):
        words = _split(words[0])
    words = _until_shell_operator(words)
    start, serves = _find_server(words)
    reading = _Reading(list(words[start:]), serves)
    for word in words[:start]:
        reading.environment(word)
    reading.read()
    return ServerLine(reading.options, tuple(reading.ignored), tuple(reading.notes))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " "))
    except ValueError as error:
        raise ValueError(f"the pasted line cannot be split into words: {error}; mend its quotes") from None


def _until_shell_operator(words: Sequence[str]) -> Sequence[str]:
    end = next((index for index, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


def _find_server(words: Sequence[str]) -> tuple[int, bool]:
    """Where the server's own words begin, and whether its first word that is no option is the model."""
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word.rsplit("/", 1)[-1] == "vllm" and following == "serve":
            return index + 2, True
        if word == "-m" and re.fullmatch(r"vllm\.entrypoints\.(?:openai\.)?api_server", following):
            return index + 2, False
        if "vllm-openai" in word and not word.startswith("-"):
            return index + 1, True
    example = "vllm serve MODEL ... or python -m vllm.entrypoints.openai.api_server --model MODEL ..."
    raise ValueError(f"the pasted line starts no vLLM server; paste {example}")


class _Reading:
    """The words of one line on their way into options; each method takes the words that are its."""

    def __init__(self, words: list[str], serves: bool) -> None:
        self.words = words
        self.serves = serves
        self.options: dict[str, str | bool] = {}
        self.ignored: list[str] = []
        self.notes: list[str] = []

    def read(self) -> None:
        while self.words:
            word = self.words.pop(0)
            if not word.startswith("-") or word == "-":
                self._bare(word)
                continue
            name, equals, value = word.partition("=")
            name = _SHORT.get(name, name.replace("_", "-") if name.startswith("--") else name)
            if name in _VALUES:
                self._set(_VALUES[name], name, value if equals else self._value_of(name))
            elif name in _SWITCHES or name.replace("--no-", "--", 1) in _SWITCHES:
                if equals:
                    raise ValueError(f"{name} in the pasted line takes no value; write {name} alone")
                self._set(_SWITCHES[name.replace("--no-", "--", 1)], name, not name.startswith("--no-"))
            else:
                self._ignore(name, word, bool(equals))

    def environment(self, word: str) -> None:
        """A word before the server: a setting that memory depends on, or one that is passed over."""
        match = _SETTING.fullmatch(word)
        if match is None:
            return
        if match[1] == "VLLM_ALLOW_LONG_MAX_MODEL_LEN":
            self.options["allow_long"] = match[2] not in ("", "0")
        elif match[1] == "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS":
            self.options["count_graphs"] = match[2] not in ("", "0")
        else:
            self.ignored.append(f"{match[1]}=...")  # it may be a secret
            if match[1] == "VLLM_PP_LAYER_PARTITION":
                self.notes.append(f"{match[1]} is not counted here although memory may depend on it")

    def _bare(self, word: str) -> None:
        """A word that is no option: the model, where the line may name it so, or one word too many."""
        if not self.serves:
            self.ignored.append(word)
            return
        self.serves = False
        if "model" in self.options:
            self.notes.append(f"the model is named twice; {word}, which stands alone, counts")
        self.options["model"] = word

    def _value_of(self, name: str) -> str:
        following = self.words[0] if self.words else "-"
        if following.startswith("-") and not _NUMBER.fullmatch(following):
            raise ValueError(f"{name} in the pasted line has no value; write {name} VALUE")
        return self.words.pop(0)

    def _set(self, field: str, name: str, value: str | bool) -> None:
        if field == "model" and "model" in self.options and not self.serves:
            self.notes.append(f"the model is named twice; {self.options['model']}, which stands alone, counts")
            return
        if field in self.options:
            self.notes.append(f"{name} is given twice; the last, {value}, counts, as in vLLM")
        self.options[field] = value

    def _ignore(self, name: str, word: str, has_value: bool) -> None:
        """An option that is not read here, with the words that are its value."""
        taken = [word]
        if not has_value and _VALUELESS.fullmatch(name):
            if self.words and self.words[0].lower() in ("true", "false"):  # old forms took one
                taken.append(self.words.pop(0))
        elif not has_value and self.words and not self.words[0].startswith("-"):
            taken.append(self.words.pop(0))
        while self.words and not self.words[0].startswith("-") and not self.serves:
            taken.append(self.words.pop(0))
        secret = _SECRET.search(name) and len(taken) + has_value > 1
        self.ignored.append(f"{name} ..." if secret else " ".join(taken))
        if COUNTS.fullmatch(name):
            self.notes.append(f"{name} is not counted here although memory may depend on it")
            return
        near = difflib.get_close_matches(name, [*_VALUES, *_SWITCHES], n=1, cutoff=0.88)
        self.notes += [f"{name} is no option that is read; did you mean {option}?" for option in near]
