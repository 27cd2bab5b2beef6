"""Tuned: sum over the last axis, for Hopper.

    y[m] = sum(x[m, :])

Cost: 1 FLOP and itemsize bytes per element: 0.5 FLOP/byte in float16, far below any ridge point.
Plan: a program takes a tile of several rows, or of one of up to HELD_COLS columns; on longer rows it walks with a
    float32 sum in each lane.  Where rows are few and long, several programs take parts of a row, and a second kernel
    adds the parts in a fixed order.
    A row that does not start on 16 bytes is taken in vectors from its first aligned element on; the few elements
    around them go by themselves.
Limit: a view without unit stride along N is copied first.
Try first: LONG_WARPS and LONG_DEPTH, which say how much is in flight; NARROW_TILE and THREAD_ELEMENTS for short rows.
"""

import functools

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "reduce"
BACKEND = "triton"

NARROW_COLS = 2048  # up to so many columns, a program takes several rows; one of 512, 1024, 2048, 4096
HELD_COLS = 32768  # the same where rows start on 16 bytes; one of 2048, 8192, 16384, 32768, 65536
NARROW_TILE = 8192  # elements of such a program; one of 2048, 4096, 8192, 16384
THREAD_ELEMENTS = 32  # elements of its threads; one of 8, 16, 32, 64
LONG_WARPS = 8  # warps on one row; one of 1, 2, 4, 8, 16
LONG_DEPTH = 4  # vectors that a thread loads at a time; one of 1, 2, 4, 8
PART_COLS = 16384  # least columns of a part of a row; one of 8192, 16384, 32768, 65536
PROGRAMS_PER_SM = 2  # fewer programs than this, and rows are divided; one of 1, 2, 4, 8
EVICTION = "evict_first"  # tune: "", evict_first


@triton.jit
def narrow_kernel(
    x_ptr, y_ptr, stride_x, n_rows, n_cols, EVICTION: tl.constexpr,
    ALIGNED: tl.constexpr, VECTOR: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # int64: row * stride can pass 2**31
    cols = tl.arange(0, BLOCK_N)[None, :]
    if ALIGNED:  # known to be whole vectors
        n_cols = n_cols // VECTOR * VECTOR
        stride_x = stride_x // VECTOR * VECTOR
    mask = (rows[:, None] < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows[:, None] * stride_x + cols, mask=mask, other=0.0, eviction_policy=EVICTION)
    tl.store(y_ptr + rows, tl.sum(x.to(tl.float32), axis=1).to(y_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def long_kernel(
    x_ptr, y_ptr, stride_x, n_cols, part_cols,
    EVICTION: tl.constexpr, VECTOR: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(1)
    begin = tl.program_id(0).to(tl.int64) * stride_x + part * part_cols
    count = tl.minimum(part_cols, n_cols - part * part_cols)
    head = tl.minimum((begin + VECTOR - 1) // VECTOR * VECTOR - begin, count).to(tl.int32)
    body = (begin + head) // VECTOR * VECTOR
    length = (count - head) // VECTOR * VECTOR
    # Before the body and after it there are fewer than VECTOR elements each.
    lanes = tl.arange(0, 2 * VECTOR)
    ends = tl.where(lanes < VECTOR, lanes, head + length + lanes - VECTOR)
    at_ends = tl.where(lanes < VECTOR, lanes < head, ends < count)
    x_ends = tl.load(x_ptr + begin + ends, mask=at_ends, other=0.0).to(tl.float32)

    cols = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    partial = tl.zeros((DEPTH, LANES), dtype=tl.float32)
    for start in range(0, length, DEPTH * LANES):
        mask = start + cols < length
        partial += tl.load(x_ptr + body + start + cols, mask=mask, other=0.0, eviction_policy=EVICTION).to(tl.float32)
    total = tl.sum(tl.sum(partial, axis=0), axis=0) + tl.sum(x_ends, axis=0)
    y_ptr += tl.program_id(0).to(tl.int64) * tl.num_programs(1) + part
    tl.store(y_ptr, total.to(y_ptr.dtype.element_ty))


@functools.cache
def processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def part_count(n_rows, n_cols, device):
    wanted = triton.cdiv(processors(device) * PROGRAMS_PER_SM, n_rows)
    return max(1, min(wanted, n_cols // PART_COLS, 1024))


def kernel_fn(x):
    n_cols = x.shape[-1]
    rows = x.reshape(-1, n_cols)
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    n_rows, stride = rows.shape[0], rows.stride(0)
    vector = 16 // x.element_size()

    aligned = n_cols % vector == 0 and stride % vector == 0
    if n_cols <= NARROW_COLS or (aligned and n_cols <= HELD_COLS):
        narrow(rows, y, vector)
        return y
    parts = part_count(n_rows, n_cols, x.device)
    part_cols = triton.cdiv(triton.cdiv(n_cols, parts), vector) * vector
    parts = triton.cdiv(n_cols, part_cols)
    sums = y if parts == 1 else torch.empty((n_rows, parts), device=x.device, dtype=torch.float32)
    long_kernel[(n_rows, parts)](
        rows, sums, stride, n_cols, part_cols, EVICTION=EVICTION, VECTOR=vector,
        LANES=32 * LONG_WARPS * vector, DEPTH=LONG_DEPTH, num_warps=LONG_WARPS,
    )  # fmt: skip
    if parts > 1:
        narrow(sums, y, 4)
    return y


def narrow(rows, y, vector):
    n_rows, n_cols = rows.shape
    block_n = triton.next_power_of_2(n_cols)
    tile_rows = max(1, min(NARROW_TILE // block_n, triton.next_power_of_2(n_rows)))
    narrow_kernel[(triton.cdiv(n_rows, tile_rows),)](
        rows, y, rows.stride(0), n_rows, n_cols, EVICTION=EVICTION,
        ALIGNED=n_cols % vector == 0 and rows.stride(0) % vector == 0, VECTOR=vector, ROWS=tile_rows, BLOCK_N=block_n,
        num_warps=max(1, min(16, tile_rows * block_n // (32 * THREAD_ELEMENTS))),
    )  # fmt: skip
