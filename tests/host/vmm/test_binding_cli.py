"""python -m vmm over the real bindings: info, demo, and errors of one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import vmm
from vmm.commands import run

UNIT = 2 << 20


def test_the_program_uses_the_library_that_is_there(stub, tmp_path):
    """Without --driver, as a process of its own: nothing of this test's machinery is in it but the library."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(stub.library),
        "PYTHONPATH": str(Path(vmm.__file__).parents[1]),
        "STUB_RECORD": str(tmp_path / "record"),
    }
    environment.pop("VMM_DRIVER", None)
    done = subprocess.run(
        [sys.executable, "-m", "vmm", "info"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("driver cuda 13.4, device 0 Stub GPU, backing device\n")
    assert "cuInit 00000000 = 0\n" in (tmp_path / "record").read_text()


def test_info_shows_what_the_driver_answers(stub):
    status, calls = stub(run, ["info", "--driver", "cuda", "--json"], STUB_DEVICES=2)
    assert (status, stub.stderr) == (0, "")
    found = json.loads(stub.stdout)
    assert (found["driver"], found["version"], found["backing"]) == ("cuda", 13040, "device")
    first, second = found["devices"]
    assert first["name"] == "Stub GPU"
    assert first["memory_total_bytes"] == first["memory_free_bytes"] == 8 << 30
    assert (first["granularity_minimum_bytes"], first["granularity_recommended_bytes"]) == (UNIT, 2 * UNIT)
    assert (first["handle_types"], first["features"]) == (["posix_file_descriptor"], [])
    assert (first["peer_access"], second["peer_access"]) == ([1], [0])
    assert len(calls.of("cuDevicePrimaryCtxRetain")) == 2


def test_info_of_a_device_without_vmm(stub):
    status, calls = stub(run, ["info", "--driver", "cuda"], STUB_VMM=0)
    assert (status, stub.stderr) == (0, "")
    assert "virtual memory management  no" in stub.stdout
    assert not calls.of("cuMemGetAllocationGranularity")


def test_the_demo_walks_through_the_calls(stub):
    status, calls = stub(run, ["demo", "--driver", "cuda", "--json"])
    assert (status, stub.stderr) == (0, "")
    steps = json.loads(stub.stdout)["steps"]
    total, size = 8 << 30, 64 << 20
    assert [(step["step"], total - step["driver_free"], step["system"]) for step in steps] == [
        ("start", 0, None),
        ("reserve", 0, None),
        *[(name, size, None) for name in ("create", "map", "set access", "use", "unmap")],
        ("release", 0, None),
        ("free", 0, None),
    ]
    assert [call.args[2] for call in calls.of("cuMemcpyHtoD")] == [(7).to_bytes(8, "little")] * 2


def test_errors_are_one_line(stub):
    expected = {
        "cuInit:1:100": "error: driver 'cuda' finds no GPU: cuInit(0) failed: CUDA_ERROR_NO_DEVICE (100)",
        "cuInit:1:803": "error: driver 'cuda' cannot be used: cuInit(0) failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "cuMemCreate:3:2": "error: cuMemCreate(0x1000000, 0) failed: CUDA_ERROR_OUT_OF_MEMORY (2); free memory",
        "cuMemMap:1:4242": "error: cuMemMap(0x",
    }
    for fails, text in expected.items():
        status, _ = stub(run, ["demo", "--driver", "cuda"], STUB_FAIL=fails)
        assert status == (2 if "driver 'cuda'" in text else 1)  # a driver that is not there is bad usage
        assert stub.stderr.startswith(text)
        assert stub.stderr.count("\n") == 1


def test_a_fallback_is_a_warning_of_one_line_and_the_run_names_the_host_driver(stub):
    status, _ = stub(run, ["demo"], STUB_VMM=0)
    assert status == 0
    assert stub.stderr.startswith("warning: falling back to the host driver: device 0 Stub GPU does not support")
    assert stub.stderr.count("\n") == 1
    assert stub.stdout.startswith("driver host ")
