"""The software driver: the rules of the CUDA driver's virtual memory calls, without a GPU.

``HostDriver`` is an object with the functions of ``cuda.bindings.driver``. Each file here is one concept: the bindings'
values (arguments, properties, results), the state (address_space, physical, execution, state), where bytes live
(backing, memory_backing with libc and spans), and the calls by kind. The operating system's own view is in os_view.
"""

from .driver import HostDriver
from .explain import Explanation, Touch
from .state import Live

__all__ = ["Explanation", "HostDriver", "Live", "Touch"]
