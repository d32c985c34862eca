"""The software driver: the rules of the CUDA driver's virtual memory calls, without a GPU.

``HostDriver`` is an object with the functions of ``cuda.bindings.driver``. Each file here is one concept: the bindings'
values (arguments, properties, results), the state (address_space, physical, execution, state), where bytes live
(backing, memory_backing with libc and spans; shared_file), when work runs (work_queue), and the calls by kind. What
happened is in history and explain, the whole state in picture, refusals on demand in failures. The operating system's
own view is in os_view.
"""

from .driver import HostDriver
from .explain import Explanation, Touch
from .failures import Failed, FailingDriver, Failure, SweepError, sweep
from .picture import Picture
from .state import Live

__all__ = [
    "Explanation",
    "Failed",
    "FailingDriver",
    "Failure",
    "HostDriver",
    "Live",
    "Picture",
    "SweepError",
    "Touch",
    "sweep",
]
