"""GPUs by name, and by size."""

from __future__ import annotations

import pytest

from paged.planner.gpus import GPUS, find_gpu

GIB = 1 << 30


@pytest.mark.parametrize("name", ["H100-80GB", "h100-80gb", "H100 80GB", "NVIDIA H100 80GB", "h100_80"])
def test_a_name_is_found_however_it_is_written(name: str) -> None:
    found = find_gpu(name)
    assert (found.name, found.memory) == ("H100-80GB", int(79.18 * GIB))


@pytest.mark.parametrize(
    ("text", "memory"),
    [("80 GiB", 80 * GIB), ("85899345920", 80 * GIB), ("79.18GiB", int(79.18 * GIB)), ("512mib", 512 << 20)],
)
def test_a_size_is_taken_as_it_is(text: str, memory: int) -> None:
    assert find_gpu(text).memory == memory


def test_a_name_of_several_sizes_is_refused_with_both() -> None:
    with pytest.raises(ValueError, match=r"GPU 'A100' comes in several sizes; write A100-40GB or A100-80GB"):
        find_gpu("A100")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("H1000", r"GPU 'H1000' is not known; write its memory, such as '80 GiB', or T4-16GB"),
        ("", r"GPU '' is not known"),
        ("x" * 99, r"GPU 'x{56}\.\.\. is not known"),
        ("80 GB", r"GPU memory '80 GB' is not a size; write for example '2 MiB'"),
        ("0", r"GPU memory must be more than 0"),
    ],
)
def test_what_is_neither_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_gpu(text)


@pytest.mark.parametrize(
    ("name", "seqs", "tokens"),
    [("H100-80GB", 1024, 8192), ("70 GiB", 1024, 8192), ("69 GiB", 256, 2048), ("A100-80GB", 256, 2048)],
)
def test_the_batch_that_vllm_takes_by_itself(name: str, seqs: int, tokens: int) -> None:
    """vLLM's rule: large GPUs that are no A100."""
    found = find_gpu(name)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (seqs, tokens)


def test_no_gpu_has_more_than_its_name_says() -> None:
    for name, gib in GPUS.items():
        nominal = int(name.rsplit("-", 1)[1].removesuffix("GB"))
        assert 0.89 * nominal < gib < nominal
