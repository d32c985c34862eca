"""What ``import paged`` gives, and what it must not drag in."""

import subprocess
import sys

import paged


def test_every_public_name_is_there_once():
    assert sorted(set(paged.__all__)) == sorted(paged.__all__)
    assert [name for name in paged.__all__ if not hasattr(paged, name)] == []
    assert {"model", "KVSpec", "KVLayout", "BlockPool", "KVPool", "Sequence", "ContiguousKV", "locate"} <= set(
        paged.__all__
    )


def test_importing_paged_brings_no_charts_and_no_device_arrays():
    code = "import sys, paged; print([name for name in ('cupy', 'matplotlib', 'click', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
