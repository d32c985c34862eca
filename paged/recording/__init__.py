"""Recording: what a pool does and what the driver is asked for it, on one clock, in bounded memory.

Data flows  KVPool -> PoolTaps (wrapped methods) -> EventRing (numbers) -> Recording -> a file -> State (both page
tables at any moment) -> the page of ``view`` and the exports.
"""

from .pool_recorder import PoolRecorder, record
from .recording import Recording
from .recording_error import RecordingError

__all__ = ["PoolRecorder", "Recording", "RecordingError", "record"]
