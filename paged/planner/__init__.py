"""What fits on a GPU, and which limit binds: a vLLM server's memory counted before it is started.

architecture, weights, activations, workspace, graphs (what one GPU spends) -> memory -> kv_pool, sequences (what fits)
-> layouts (what a layout wastes), binding (what is in the way) -> plan -> table, chart.
"""

from .options import PlanOptions as PlanOptions
from .options import read_options as read_options
from .plan import Plan as Plan
from .plan import make_plan as make_plan
from .server_line import ServerLine as ServerLine
from .server_line import read_server_line as read_server_line
