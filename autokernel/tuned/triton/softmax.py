"""Tuned: softmax over the last axis, for Hopper.

    y[m, n] = exp(x[m, n] - max(x[m, :])) / sum(exp(x[m, :] - max(x[m, :])))

Cost: 5 FLOP and 2 * itemsize bytes per element: about 1 FLOP/byte in float16, far below any ridge point.
Plan: a row of up to MAX_TILE columns stays in registers and is read once; where rows are narrow, a program takes
    several.  A longer row is read twice: first for a maximum and a sum in each lane, kept up to date together and
    combined once at the end; then backwards, so that what was read last is found in the L1 and the rest in the L2.
    A row that does not start on 16 bytes is taken in vectors from its first aligned element on; the few elements
    before and after that go by themselves.
Limit: a view without unit stride along N, or whose rows are not aligned as those of y are, is copied first.
Try first: THREAD_ELEMENTS and NARROW_TILE, which say how much is in flight; for long rows PROGRAMS_PER_SM,
    LONG_WARPS and LONG_DEPTH.
"""

import functools

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "softmax"
BACKEND = "triton"

MAX_TILE = 32768  # most columns that stay in registers; one of 8192, 16384, 32768
NARROW_TILE = 2048  # elements of a program that takes several rows; one of 512, 1024, 2048, 4096, 8192
THREAD_ELEMENTS = 16  # elements of a thread; one of 8, 16, 32, 64
LONG_WARPS = 16  # warps on a row that is read twice; one of 4, 8, 16, 32
LONG_DEPTH = 4  # vectors that a thread loads at a time; one of 1, 2, 4, 8
PROGRAMS_PER_SM = 2  # programs that walk over the long rows; one of 1, 2, 3, 4, 8
SHIFTED_FROM = 1024  # columns from which a row that is not aligned is shifted; one of 256, 1024, 4096


@triton.jit
def tile_kernel(
    x_ptr, y_ptr, stride_x, n_rows, n_cols,
    ALIGNED: tl.constexpr, VECTOR: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]  # int64: row * stride can pass 2**31
    cols = tl.arange(0, BLOCK_N)[None, :]
    if ALIGNED:  # known to be whole vectors
        n_cols = n_cols // VECTOR * VECTOR
        stride_x = stride_x // VECTOR * VECTOR
    mask = (rows < n_rows) & (cols < n_cols)

    x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    largest = tl.max(x, axis=1, keep_dims=True)
    largest = tl.where(rows < n_rows, largest, 0.0)  # in a row that is not there: no inf - inf
    exponentials = tl.exp(x - largest)  # masked lanes are exp(-inf) = 0
    y = exponentials * (1.0 / tl.sum(exponentials, axis=1, keep_dims=True))
    tl.store(y_ptr + rows * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def split_row(begin, n_cols, VECTOR: tl.constexpr):
    """Divide a row into whole aligned vectors, from ``begin + head`` on, and up to 2 * VECTOR elements around them."""
    head = ((begin + VECTOR - 1) // VECTOR * VECTOR - begin).to(tl.int32)
    length = tl.maximum(n_cols - head, 0) // VECTOR * VECTOR
    lanes = tl.arange(0, 2 * VECTOR)
    ends = tl.where(lanes < VECTOR, lanes, head + length + lanes - VECTOR)
    at_ends = tl.where(lanes < VECTOR, lanes < tl.minimum(head, n_cols), ends < n_cols)
    return head, length, ends, at_ends


@triton.jit
def shifted_kernel(x_ptr, y_ptr, stride_x, n_cols, VECTOR: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    head, length, ends, at_ends = split_row(row * stride_x, n_cols, VECTOR)
    x_body = (row * stride_x + head) // VECTOR * VECTOR
    y_body = (row * n_cols + head) // VECTOR * VECTOR
    mask = tl.arange(0, BLOCK_N) < length

    x = tl.load(x_ptr + x_body + tl.arange(0, BLOCK_N), mask=mask, other=-float("inf")).to(tl.float32)
    x_ends = tl.load(x_ptr + row * stride_x + ends, mask=at_ends, other=-float("inf")).to(tl.float32)
    largest = tl.maximum(tl.max(x, axis=0), tl.max(x_ends, axis=0))
    y, y_ends = tl.exp(x - largest), tl.exp(x_ends - largest)
    scale = 1.0 / (tl.sum(y, axis=0) + tl.sum(y_ends, axis=0))

    tl.store(y_ptr + y_body + tl.arange(0, BLOCK_N), (y * scale).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + row * n_cols + ends, (y_ends * scale).to(y_ptr.dtype.element_ty), mask=at_ends)


@triton.jit
def long_kernel(
    x_ptr, y_ptr, stride_x, n_rows, n_cols, VECTOR: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr
):  # fmt: skip
    TILE: tl.constexpr = DEPTH * LANES
    cols = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        head, length, ends, at_ends = split_row(row * stride_x, n_cols, VECTOR)
        x_body = (row * stride_x + head) // VECTOR * VECTOR
        y_body = (row * n_cols + head) // VECTOR * VECTOR
        x_ends = tl.load(x_ptr + row * stride_x + ends, mask=at_ends, other=-float("inf")).to(tl.float32)

        largest = tl.full((LANES,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((LANES,), dtype=tl.float32)
        for start in range(0, length, TILE):
            mask = start + cols < length
            x = tl.load(x_ptr + x_body + start + cols, mask=mask, other=-float("inf"), eviction_policy="evict_last")
            x = x.to(tl.float32)
            new_largest = tl.maximum(largest, tl.max(x, axis=0))
            shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)  # -inf so far: avoid inf - inf
            total = total * tl.exp(largest - shift) + tl.sum(tl.exp(x - shift[None, :]), axis=0)
            largest = new_largest
        overall = tl.maximum(tl.max(largest, axis=0), tl.max(x_ends, axis=0))
        y_ends = tl.exp(x_ends - overall)
        scale = 1.0 / (tl.sum(total * tl.exp(largest - overall), axis=0) + tl.sum(y_ends, axis=0))

        last = (length - 1) // TILE * TILE
        for back in range(0, length, TILE):
            start = last - back
            mask = start + cols < length
            x = tl.load(x_ptr + x_body + start + cols, mask=mask, other=0.0, eviction_policy="evict_first")
            y = tl.exp(x.to(tl.float32) - overall) * scale
            y = y.to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + y_body + start + cols, y, mask=mask, eviction_policy="evict_first")
        tl.store(y_ptr + row * n_cols + ends, (y_ends * scale).to(y_ptr.dtype.element_ty), mask=at_ends)


@functools.cache
def processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def warps_for(elements):
    return max(1, min(32, elements // (32 * THREAD_ELEMENTS)))


def kernel_fn(x):
    n_cols = x.shape[-1]
    vector = 16 // x.element_size()
    rows = x.reshape(-1, n_cols)
    if rows.stride(1) != 1 or (rows.stride(0) - n_cols) % vector != 0:
        rows = rows.contiguous()
    n_rows, stride = rows.shape[0], rows.stride(0)
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)

    block_n = triton.next_power_of_2(n_cols)
    aligned = n_cols % vector == 0 and stride % vector == 0
    if n_cols > MAX_TILE:
        programs = min(n_rows, processors(x.device) * PROGRAMS_PER_SM)
        long_kernel[(programs,)](
            rows, y, stride, n_rows, n_cols,
            VECTOR=vector, LANES=32 * LONG_WARPS * vector, DEPTH=LONG_DEPTH, num_warps=LONG_WARPS,
        )  # fmt: skip
    elif aligned or n_cols < SHIFTED_FROM:
        tile_rows = max(1, min(NARROW_TILE // block_n, triton.next_power_of_2(n_rows)))
        tile_kernel[(triton.cdiv(n_rows, tile_rows),)](
            rows, y, stride, n_rows, n_cols,
            ALIGNED=aligned, VECTOR=vector, ROWS=tile_rows, BLOCK_N=block_n, num_warps=warps_for(tile_rows * block_n),
        )  # fmt: skip
    else:
        shifted_kernel[(n_rows,)](
            rows, y, stride, n_cols, VECTOR=vector, BLOCK_N=block_n, num_warps=warps_for(block_n)
        )  # fmt: skip
    return y
