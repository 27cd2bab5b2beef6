"""Tuned: cross entropy of logits against class targets, averaged over the targets that are not -100, for Hopper.

    loss = mean of log(sum(exp(logits[n, :]))) - logits[n, targets[n]]

Cost: 4 FLOP and itemsize bytes per logit: 2 FLOP/byte in float16, far below any ridge point.
Plan: one read.  Each lane keeps a maximum and a sum of its own over LONG_DEPTH vectors at a time, so that there is
    little more than one exp for a logit, and lanes are combined once for a row.  A row that does not start on 16 bytes
    is taken in vectors from its first aligned element on; the few elements around them go by themselves.
    A second kernel, of one program, adds up the rows' losses in a fixed order and divides by their number.
Limit: a view without unit stride along V is copied first; few rows leave processors idle.
Try first: LONG_WARPS, LONG_DEPTH and PROGRAMS_PER_SM; NARROW_TILE and NARROW_WARPS where classes are few.
"""

import functools

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "cross_entropy"
BACKEND = "triton"

NARROW_COLS = 1024  # up to so many classes, a program takes several rows; one of 512, 1024, 2048, 4096
NARROW_TILE = 4096  # elements of such a program; one of 1024, 2048, 4096, 8192
NARROW_WARPS = 4  # tune: 2, 4, 8
LONG_WARPS = 2  # warps on one row; one of 1, 2, 4, 8, 16
LONG_DEPTH = 4  # vectors that a thread loads at a time; one of 1, 2, 4, 8
WIDE_COLS = 65536  # from so many classes, the next two count instead; one of 32768, 65536, 131072
WIDE_WARPS = 4  # tune: 2, 4, 8
WIDE_DEPTH = 8  # tune: 4, 8
PROGRAMS_PER_SM = 64  # programs that walk over the rows; one of 4, 8, 16, 32, 64
EVICTION = "evict_first"  # tune: "", evict_first
MEAN_BLOCK = 4096  # losses added at a time; one of 1024, 2048, 4096, 8192
MEAN_WARPS = 16  # tune: 4, 8, 16, 32
IGNORED = -100


@triton.jit
def narrow_kernel(
    logits_ptr, targets_ptr, losses_ptr, stride_n, N, V,
    IGNORED: tl.constexpr, ALIGNED: tl.constexpr, VECTOR: tl.constexpr, ROWS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # int64: row * stride can pass 2**31
    cols = tl.arange(0, BLOCK_V)[None, :]
    if ALIGNED:  # known to be whole vectors
        V = V // VECTOR * VECTOR
        stride_n = stride_n // VECTOR * VECTOR
    here = rows < N
    x = tl.load(logits_ptr + rows[:, None] * stride_n + cols, mask=here[:, None] & (cols < V), other=-float("inf")).to(
        tl.float32
    )
    targets = tl.load(targets_ptr + rows, mask=here, other=IGNORED)
    counts = targets != IGNORED
    chosen = tl.load(logits_ptr + rows * stride_n + targets, mask=counts, other=0.0).to(tl.float32)

    largest = tl.where(here, tl.max(x, axis=1), 0.0)  # in a row that is not there: no inf - inf
    total = tl.sum(tl.exp(x - largest[:, None]), axis=1)
    loss = tl.log(total) + (largest - chosen)
    tl.store(losses_ptr + rows, tl.where(counts, loss, 0.0), mask=here)


@triton.jit
def row_loss_kernel(
    logits_ptr, targets_ptr, losses_ptr, stride_n, N, V,
    IGNORED: tl.constexpr, EVICTION: tl.constexpr, VECTOR: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    TILE: tl.constexpr = DEPTH * LANES
    cols = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    lanes = tl.arange(0, 2 * VECTOR)
    for row in range(tl.program_id(0).to(tl.int64), N, tl.num_programs(0)):
        target = tl.load(targets_ptr + row)
        counts = target != IGNORED
        n_cols = tl.where(counts, V, 0)  # a row that does not count is not read
        begin = row * stride_n
        head = tl.minimum((begin + VECTOR - 1) // VECTOR * VECTOR - begin, n_cols).to(tl.int32)
        body = (begin + head) // VECTOR * VECTOR
        length = (n_cols - head) // VECTOR * VECTOR
        # Before the body and after it there are fewer than VECTOR elements each.
        ends = tl.where(lanes < VECTOR, lanes, head + length + lanes - VECTOR)
        at_ends = tl.where(lanes < VECTOR, lanes < head, ends < n_cols)
        x_ends = tl.load(logits_ptr + begin + ends, mask=at_ends, other=-float("inf")).to(tl.float32)
        chosen = tl.load(logits_ptr + begin + target, mask=counts, other=0.0).to(tl.float32)

        largest = tl.full((LANES,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((LANES,), dtype=tl.float32)
        for start in range(0, length, TILE):
            mask = start + cols < length
            x = tl.load(logits_ptr + body + start + cols, mask=mask, other=-float("inf"), eviction_policy=EVICTION)
            x = x.to(tl.float32)
            new_largest = tl.maximum(largest, tl.max(x, axis=0))
            shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)  # -inf so far: avoid inf - inf
            total = total * tl.exp(largest - shift) + tl.sum(tl.exp(x - shift[None, :]), axis=0)
            largest = new_largest
        overall = tl.maximum(tl.max(largest, axis=0), tl.max(x_ends, axis=0))
        shift = tl.where(counts, overall, 0.0)  # nothing was read: avoid inf - inf
        in_row = tl.sum(total * tl.exp(largest - shift), axis=0) + tl.sum(tl.exp(x_ends - shift), axis=0)
        loss = tl.log(in_row) + (overall - chosen)
        tl.store(losses_ptr + row, tl.where(counts, loss, 0.0))


@triton.jit
def mean_kernel(losses_ptr, targets_ptr, mean_ptr, N, IGNORED: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, N, BLOCK):
        mask = start + rows < N
        total += tl.load(losses_ptr + start + rows, mask=mask, other=0.0)
        count += (tl.load(targets_ptr + start + rows, mask=mask, other=IGNORED) != IGNORED).to(tl.int32)
    tl.store(mean_ptr, tl.sum(total, axis=0) / tl.sum(count, axis=0).to(tl.float32))  # 0 / 0 is NaN, as in PyTorch


@functools.cache
def processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def kernel_fn(logits, targets):
    N, V = logits.shape
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    targets = targets.contiguous()
    losses = torch.empty(N, device=logits.device, dtype=torch.float32)
    mean = torch.empty((), device=logits.device, dtype=torch.float32)

    vector, stride = 16 // logits.element_size(), logits.stride(0)
    if V <= NARROW_COLS:
        block_v = triton.next_power_of_2(V)
        rows = max(1, min(NARROW_TILE // block_v, triton.next_power_of_2(N)))
        narrow_kernel[(triton.cdiv(N, rows),)](
            logits, targets, losses, stride, N, V, IGNORED=IGNORED, ALIGNED=V % vector == 0 and stride % vector == 0,
            VECTOR=vector, ROWS=rows, BLOCK_V=block_v, num_warps=NARROW_WARPS,
        )  # fmt: skip
    else:
        warps, depth = (WIDE_WARPS, WIDE_DEPTH) if V >= WIDE_COLS else (LONG_WARPS, LONG_DEPTH)
        row_loss_kernel[(min(N, processors(logits.device) * PROGRAMS_PER_SM),)](
            logits, targets, losses, stride, N, V, IGNORED=IGNORED, EVICTION=EVICTION,
            VECTOR=vector, LANES=32 * warps * vector, DEPTH=depth, num_warps=warps,
        )  # fmt: skip
    mean_kernel[(1,)](losses, targets, mean, N, IGNORED=IGNORED, BLOCK=MEAN_BLOCK, num_warps=MEAN_WARPS)
    return mean
