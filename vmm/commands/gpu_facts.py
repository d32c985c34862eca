"""What the kernel module says about a GPU in /proc: firmware and MIG. Everything may be missing."""

from __future__ import annotations

from pathlib import Path

NOT_KNOWN = "not known"
ROOT = Path("/proc/driver/nvidia")


def gsp_firmware(bus: str, root: Path = ROOT) -> str:
    """The version of the GPU's own firmware (GSP), "none" where the GPU runs without, else "not known"."""
    version = _information(bus, root).get("GPU Firmware", NOT_KNOWN)
    return "none" if version == "N/A" else version


def mig_mode(name: str, bus: str, root: Path = ROOT) -> str:
    """Whether the GPU is cut into instances (MIG): "enabled", "no instances" or "not known"."""
    if " MIG " in f" {name} ":
        return "enabled"
    minor = _information(bus, root).get("Device Minor", "")
    instances = root / "capabilities" / f"gpu{minor}" / "mig"
    if not minor or not instances.is_dir():
        return NOT_KNOWN
    return "enabled" if any(instances.glob("gi*")) else "no instances"


def _information(bus: str, root: Path) -> dict[str, str]:
    """The lines "key: value" of the GPU's page."""
    try:
        text = (root / "gpus" / bus / "information").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip()}
