"""python -m vmm: info and demo, their statuses and their errors."""

import json
import subprocess
import sys

import pytest

from vmm.commands import run
from vmm.commands.gpu_facts import gsp_firmware, mig_mode

UNIT = 2 << 20


@pytest.fixture
def host(monkeypatch):
    """No GPU takes part, whatever the machine has."""
    monkeypatch.setenv("VMM_DRIVER", "host")


def output(capsys, *arguments):
    """What a command that must succeed prints."""
    assert run(list(arguments)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


@pytest.mark.usefixtures("host")
def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "vmm", "demo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("driver host ")


@pytest.mark.usefixtures("host")
def test_the_first_line_names_driver_device_and_backing(capsys):
    for command in ("info", "demo"):
        first = output(capsys, command, "--backing", "none").splitlines()[0]
        assert first.startswith("driver host ")
        assert first.endswith("device 0 software device, backing none")


@pytest.mark.usefixtures("host")
def test_info_lists_what_the_device_has(capsys):
    found = json.loads(output(capsys, "info", "--memory", "1 GiB", "--json"))
    assert (found["schema"], found["driver"], found["backing"]) == (1, "host", "memory")
    device = found["devices"][0]
    assert device["memory_total_bytes"] == device["memory_free_bytes"] == 1 << 30
    assert device["virtual_memory_management"] is True
    assert device["granularity_minimum_bytes"] == device["granularity_recommended_bytes"] == UNIT
    assert (device["handle_types"], device["peer_access"]) == (["posix_file_descriptor"], [])
    text = output(capsys, "info", "--memory", "1 GiB")
    assert "granularity minimum        2 MiB" in text
    assert "virtual memory management  yes" in text


def test_without_a_command_the_help_is_printed(capsys):
    text = output(capsys)
    assert "Commands:" in text
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("host")
def test_the_demo_has_room_in_80_columns(capsys):
    found = output(capsys, "demo", "--reserve", "1 TiB", "--size", "250 MiB", "--memory", "1 GiB")
    table = found.splitlines()[2:-2]
    assert len(table) == 1 + 2 * 9
    assert max(map(len, table)) <= 80


@pytest.mark.usefixtures("host")
def test_the_demo_shows_each_step(capsys):
    steps = json.loads(output(capsys, "demo", "--reserve", "1 GiB", "--size", "64 MiB", "--memory", "1 GiB", "--json"))[
        "steps"
    ]
    seen = [(s["step"], s["reserved"], s["physical"], s["mapped"], s["accessible"]) for s in steps]
    gib, mib = 1 << 30, 64 << 20
    assert seen == [
        ("start", 0, 0, 0, 0),
        ("reserve", gib, 0, 0, 0),
        ("create", gib, mib, 0, 0),
        ("map", gib, mib, mib, 0),
        ("set access", gib, mib, mib, mib),
        ("use", gib, mib, mib, mib),
        ("unmap", gib, mib, 0, 0),
        ("release", gib, 0, 0, 0),
        ("free", 0, 0, 0, 0),
    ]
    for step in steps:  # the driver and the operating system agree at every step
        assert gib - step["driver_free"] == step["system"] == step["physical"]


@pytest.mark.usefixtures("host")
def test_the_demo_without_bytes(capsys):
    found = json.loads(output(capsys, "demo", "--backing", "none", "--memory", "80 GiB", "--size", "40 GiB",
                              "--reserve", "1 TiB", "--json"))  # fmt: skip
    assert {step["system"] for step in found["steps"]} == {None}
    assert max(step["physical"] for step in found["steps"]) == 40 << 30


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("size", [1, UNIT, UNIT + 1, 3 * UNIT, 9 * UNIT])
def test_the_demo_rounds_up_to_whole_granules(capsys, size):
    steps = json.loads(output(capsys, "demo", "--size", str(size), "--json"))["steps"]
    physical = max(step["physical"] for step in steps)
    assert physical >= size
    assert physical % UNIT == 0
    assert physical - size < 4 * UNIT
    assert steps[-1]["driver_free"] == steps[0]["driver_free"]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["bogus"], 2, "'bogus'"),
        (["demo", "--size", "0"], 2, "--size must be more than 0"),
        (["demo", "--size", "-1"], 2, "-1"),
        (["demo", "--size", "many"], 2, "'many' is not a size"),
        (["demo", "--size", "2 GiB"], 2, "larger than --reserve"),
        (["demo", "--memory", "1 KiB"], 2, "granularity of 2 MiB"),
        (["demo", "--backing", "disk"], 2, "'disk'"),
        (["demo", "--driver", "hip"], 2, "'hip'"),
        (["demo", "--driver", "cuda", "--memory", "1 GiB"], 2, "for --driver host"),
        (["demo", "--size", "64 MiB", "--memory", "32 MiB"], 1, "CUDA_ERROR_OUT_OF_MEMORY"),
        (["info", "--nonsense"], 2, "--nonsense"),
    ],
)
def test_errors_are_one_line_and_a_status(capsys, arguments, status, said):
    assert run(arguments) == status
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error


def test_a_driver_that_is_not_there_is_bad_usage(capsys, monkeypatch):
    from cuda.bindings import driver as cuda

    def missing(_flags):
        raise RuntimeError("libcuda.so.1 was not found\nsecond line")

    monkeypatch.setattr("vmm.driver.cuda", _Without(cuda, missing))
    assert run(["info", "--driver", "cuda"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "install the NVIDIA driver, or use driver='host'" in error


class _Without:
    """The bindings on a machine without a driver."""

    def __init__(self, module, missing):
        self._module, self.cuInit = module, missing

    def __getattr__(self, name):
        return getattr(self._module, name)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("command", [["--help"], ["info", "--help"], ["demo", "--help"], ["demo", "-h"]])
def test_help_has_an_example(capsys, command):
    assert "Example: python -m vmm" in output(capsys, *command)


# -- what the kernel module says about a GPU --------------------------------------------------------------------

BUS = "0000:17:00.0"


@pytest.fixture
def proc(tmp_path):
    """/proc/driver/nvidia of a machine with one GPU."""
    page = tmp_path / "gpus" / BUS / "information"
    page.parent.mkdir(parents=True)
    page.write_text(
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 254\nGPU Firmware: \t 570.86.15\n"
        "Bus Location: \t 0000:17:00.0\nDevice Minor: \t 3\nGPU Excluded:\t No\n"
    )
    return tmp_path


def test_the_firmware_is_read_where_it_is(proc):
    assert gsp_firmware(BUS, proc) == "570.86.15"
    assert gsp_firmware("0000:99:00.0", proc) == "not known"
    page = proc / "gpus" / BUS / "information"
    page.write_text(page.read_text().replace("570.86.15", "N/A"))
    assert gsp_firmware(BUS, proc) == "none"


def test_mig_is_told_by_the_name_or_by_the_instances(proc):
    assert mig_mode("NVIDIA H100 80GB HBM3 MIG 1g.10gb", BUS, proc) == "enabled"
    assert mig_mode("NVIDIA H100 80GB HBM3", BUS, proc) == "not known"
    instances = proc / "capabilities" / "gpu3" / "mig"
    instances.mkdir(parents=True)
    assert mig_mode("NVIDIA H100 80GB HBM3", BUS, proc) == "no instances"
    (instances / "gi1").mkdir()
    assert mig_mode("NVIDIA H100 80GB HBM3", BUS, proc) == "enabled"


def test_a_machine_without_the_kernel_module_is_no_error(tmp_path):
    assert (gsp_firmware(BUS, tmp_path), mig_mode("GPU", BUS, tmp_path)) == ("not known", "not known")
