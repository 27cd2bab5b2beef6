"""Fill the GPU's shared memory with garbage, so that a kernel that reads what it never wrote is found out.

Shared memory keeps what the last block on a multiprocessor left there, which is often zeros or the
same kernel's own earlier values; then a read of uninitialised shared memory goes unnoticed.
"""

from __future__ import annotations

import torch

from autokernel.backends import cuda, cuda_driver

__all__ = ["SharedMemory"]

_CUDA_SRC = r"""
extern "C" __global__ void fill_shared(int* sink, int words, int pattern) {
    extern __shared__ int memory[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) memory[i] = pattern;
    __syncthreads();
    if (sink[0] == 1) sink[1] = memory[(threadIdx.x * 7 + 1) % words];  // keeps the stores alive
}
"""
_NAN_BITS = -1  # NaN in every floating-point format
_LARGE_BITS = 0x7B7B7B7B  # large and finite in every floating-point format


class SharedMemory:
    """Overwrites the shared memory of every multiprocessor of a device."""

    def __init__(self, device: torch.device) -> None:
        self._kernel = cuda.compile(_CUDA_SRC).kernel("fill_shared", "int32*", "int32", "int32")
        self._sink = torch.zeros(2, dtype=torch.int32, device=device)
        self._bytes = cuda_driver.max_shared_bytes(self._sink.get_device())
        # A block takes all the shared memory that one may have, so each wave reaches every multiprocessor.
        self._blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count

    def fill(self, poison: int) -> None:
        """Fill it with NaN (0) or with large finite numbers (1), on the current stream."""
        pattern = _NAN_BITS if poison == 0 else _LARGE_BITS
        self._kernel[self._blocks, 1024, self._bytes](self._sink, self._bytes // 4, pattern)
