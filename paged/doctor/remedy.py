"""Remedy: options for vLLM that mend a cause, and the server with them, for a replay."""

from __future__ import annotations

import dataclasses

from .account import Account
from .finding import Finding
from .server_model import ServerModel
from .server_run import ServerRun
from .serving_case import ServingCase


@dataclasses.dataclass(frozen=True)
class Remedy:
    """``options`` as they are given to vLLM, ``why`` in a sentence.

    ``case`` is the server with it; None if a replay cannot tell, and then ``why_not`` says why. ``enough`` is False
    where the log's figures say that it does not make up for what was lacking.
    """

    options: str
    why: str
    case: ServingCase | None
    why_not: str = ""
    enough: bool = True


@dataclasses.dataclass(frozen=True)
class Patient:
    """What a remedy is worked out from."""

    run: ServerRun
    account: Account
    model: ServerModel
    case: ServingCase | None
    finding: Finding


def not_known(patient: Patient, *, memory: bool = False) -> str:
    """What a replay lacks and which options give it; empty if nothing. ``memory``: it needs the GPU's size too."""
    lacking = [("the model", "--model")] if patient.case is None else []
    if memory and patient.account.requested is None:
        lacking.append(("the memory of the GPU", "--gpu-memory"))
    if not lacking:
        return ""
    names, options = (" and ".join(words) for words in zip(*lacking, strict=True))
    return f"{names} {'is' if len(lacking) == 1 else 'are'} not known: give {options}"
