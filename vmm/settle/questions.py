"""Every question, in the order in which they are asked: what may end a process comes last."""

from __future__ import annotations

from . import addresses, mappings, memory, touching

QUESTIONS = {
    question.key: question
    for group in (
        addresses.RESERVE,
        addresses.FREE,
        memory.CREATE,
        mappings.MAP,
        mappings.UNMAP,
        mappings.SET_ACCESS,
        mappings.GET_ACCESS,
        touching.QUERIES,
        memory.ELSEWHERE,
        memory.COSTS,
        touching.COPIES,
        memory.RELEASE,
    )
    for question in group.questions
}
"""The questions by their keys."""
