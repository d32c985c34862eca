"""What the commands touch: the cache folder, temporary files that go again, and files that are named. No network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vmm

PACKAGES = Path(vmm.__file__).parents[1]
WITNESS = """
import atexit, json, os, runpy, sys
seen = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
NETWORK = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "socket.sendmsg"}
def watch(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and args[2] and args[2] & WRITES:
        seen.append((event, os.path.abspath(os.fsdecode(args[0]))))
    elif event in CHANGES:
        seen.append((event, os.path.abspath(os.fsdecode(args[1] if event == "os.rename" else args[0]))))
    elif event in NETWORK:
        seen.append(("network", str(args[1:])))
report = sys.argv.pop(1)
sys.addaudithook(watch)
def tell():
    found = list(seen)
    with open(report, "w") as file:
        json.dump(found, file)
atexit.register(tell)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
COMMANDS = {
    "vmm info": [],
    "vmm demo": [],
    "paged walk --table 7,42,9,103 --token 37 --block-size 16": [],
    "paged plan --model llama-3-8b": [],
    "paged picture --sequences 12 -o pool.svg": ["pool.svg"],
    "paged replay --limit 20 --policy paged-vmm --plot growth.png": ["growth.png"],
    "paged replay --limit 20 --policy paged-vmm --record run.pagewalk": ["run.pagewalk"],
    "kernels_cu report --kernel append_kv": [],
}
QUICK = {"vmm info"}


@pytest.mark.parametrize(
    "command", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in COMMANDS]
)
def test_a_command_writes_where_it_may_and_speaks_to_nobody(command, tmp_path):
    places = {name: tmp_path / name for name in ("home", "cache", "temporary", "work")}
    for place in places.values():
        place.mkdir()
    places["home"].chmod(0o500)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("MPL", "XDG", "PAGEWALK"))},
        "HOME": str(places["home"]),
        "PAGEWALK_CACHE": str(places["cache"]),
        "TMPDIR": str(places["temporary"]),
        "PYTHONPATH": str(PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    report = tmp_path / "report.json"
    run = [sys.executable, "-c", WITNESS, str(report), *command.split()]
    done = subprocess.run(run, cwd=places["work"], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    seen = json.loads(report.read_text())
    allowed = (str(places["cache"]), str(places["temporary"]), str(places["work"]), "/dev/null")
    assert [(event, path) for event, path in seen if not path.startswith(allowed)] == []
    assert sorted(path.name for path in places["work"].iterdir()) == COMMANDS[command]
    assert list(places["temporary"].iterdir()) == list(places["home"].iterdir()) == []
