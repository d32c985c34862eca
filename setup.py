"""Packaging of Pagewalk: three packages, the CUDA sources as package data."""

from pathlib import Path

from setuptools import find_packages, setup

BASE = [
    "numpy>=2.0",
    "ml-dtypes>=0.5",  # bfloat16 for NumPy arrays
    "cuda-bindings>=12.9,<14",  # cuda-python's driver and NVRTC bindings; they import without a GPU
    "click>=8.1",
    "rich>=13",
    "matplotlib>=3.8",
]

# CuPy's RawModule needs NVRTC and the runtime's headers, of one CUDA major with CuPy and the bindings.
CUDA13 = [
    "cupy-cuda13x>=14",
    "cuda-bindings>=13.0,<14",
    "nvidia-cuda-nvrtc>=13,<14",
    "nvidia-cuda-runtime>=13,<14",
]
CUDA12 = [
    "cupy-cuda12x>=13.4",
    "cuda-bindings>=12.9,<13",
    "nvidia-cuda-nvrtc-cu12>=12.9,<13",
    "nvidia-cuda-runtime-cu12>=12.9,<13",
]
TEST = [
    "pytest>=8",
    "hypothesis>=6.100",
    "pytest-xdist>=3.5",
    "nvidia-cuda-nvrtc>=13,<14",
    "nvidia-cuda-runtime>=13,<14",
    "nvidia-cuda-nvdisasm>=13,<14",
    "nvidia-cuda-cuobjdump>=13,<14",
]
DEV = ["ruff>=0.14", "mypy>=1.18"]
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10", "mkdocstrings[python]>=1.0,<2"]

setup(
    name="pagewalk",
    version="0.1.0",
    description="Both page tables of an LLM server: CUDA virtual memory and PagedAttention's block table",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=["vmm", "vmm.*", "paged", "paged.*", "kernels_cu", "kernels_cu.*"]),
    package_data={
        "vmm": ["py.typed", "interop/*.c"],
        "paged": ["py.typed", "page/*.html", "page/*.css", "page/*.js"],
        "kernels_cu": ["py.typed", "*.cu", "*.cuh", "host/*.h", "host/*.cpp"],
    },
    install_requires=BASE,
    extras_require={
        "cuda13": CUDA13,
        "cuda12": CUDA12,
        "host": ["ziglang>=0.13"],  # a C++ compiler as a wheel, for the kernels on a CPU
        "metrics": ["prometheus-client>=0.20"],
        "nvml": ["nvidia-ml-py>=12.535"],  # who else has memory of a GPU
        "interop": ["cuda-core>=0.3.2,<2", "numba-cuda>=0.30"],  # the light ones; RMM and PyTorch are of one CUDA
        "test": TEST,
        "dev": DEV,
        "docs": DOCS,
    },
    entry_points={"console_scripts": ["pagewalk=paged.__main__:main"]},
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
