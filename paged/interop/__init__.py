"""interop: a pool as the tensors that other attention libraries take, without a copy.

    flashinfer   paged_kv_cache, and kv_indptr, kv_indices, kv_last_page_len of a batch
    vllm         kv_cache of its backends, block_table and seq_lens of a batch

A cache is a ``vmm.TensorView`` over all blocks that have addresses: ``torch.from_dlpack(view)`` is the tensor. Memory
comes and goes beneath it, block by block, as sequences grow and end; so it is made once for each layer, and not again.
Only blocks that a table names have memory: reading all of it, by a print or a copy, is a fault on a GPU.
The pool cannot be closed while such a tensor lives.
"""

from . import flashinfer, vllm

__all__ = ["flashinfer", "vllm"]
