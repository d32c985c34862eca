"""What the documentation leaves open, asked of the driver that is there: on a GPU to learn it, here to prove it works.

A question (question.py) has a probe, which runs on a bench (bench.py): a driver with a context of its own. The probes
are sorted by the calls that they are about. A worker process (worker.py) answers; the examiner (examiner.py) starts
one, and another where it dies or loses its context.
"""

from .examiner import examine
from .question import Answer, Question
from .questions import QUESTIONS

__all__ = ["QUESTIONS", "Answer", "Question", "examine"]
