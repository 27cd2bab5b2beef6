"""Starter: sum of one long vector.

    y = sum(x)

Cost: 1 FLOP and itemsize bytes per element, so memory bandwidth is the bound.
Plan: PROGRAMS programs take the tiles of x in turn, one float32 partial sum per lane, and leave one number each;
    a second launch adds these up, in the same order each time (an atomic addition would not).
Limit: two launches; few elements leave most programs idle; a view without unit stride is copied first.
Try first: PROGRAMS as a multiple of the processors; BLOCK and NUM_WARPS; several tiles in flight per program.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "vectorsum"
BACKEND = "triton"

BLOCK = 4096
PROGRAMS = 512  # tune: 128, 256, 512, 1024, 2048
NUM_WARPS = 8


@triton.jit
def part_sum_kernel(x_ptr, y_ptr, n_elements, n_tiles, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)  # int64, and so is each tile: offsets can pass 2**31
    lanes = tl.arange(0, BLOCK)

    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for tile in range(program, n_tiles, tl.num_programs(0)):
        offs = tile * BLOCK + lanes
        partial += tl.load(x_ptr + offs, mask=offs < n_elements, other=0.0).to(tl.float32)

    tl.store(y_ptr + program, tl.sum(partial, axis=0))


def kernel_fn(x):
    x = x.contiguous()
    n_tiles = triton.cdiv(x.numel(), BLOCK)
    programs = min(PROGRAMS, n_tiles)
    parts = torch.empty(programs, device=x.device, dtype=torch.float32)
    y = torch.empty((), device=x.device, dtype=torch.float32)

    part_sum_kernel[(programs,)](x, parts, x.numel(), n_tiles, BLOCK=BLOCK, num_warps=NUM_WARPS)
    part_sum_kernel[(1,)](parts, y, programs, 1, BLOCK=triton.next_power_of_2(PROGRAMS), num_warps=NUM_WARPS)
    return y
