"""Tuned: scaled dot-product attention in one kernel, for Hopper.

    O[i, :] = sum over j of softmax over j (j <= i if causal) of (sm_scale * Q[i, :] . K[j, :]) * V[j, :]

Cost: 4 * S * S * D FLOP per head (half of it if causal) for 4 * S * D * itemsize bytes: past the ridge for long rows.
Plan: one program per BLOCK_M queries of one head walks over the keys and values in tiles of BLOCK_N, keeping the
    rows' maxima, sums and weighted values in registers (FlashAttention-2).  First the tiles that every query of the
    program sees whole, without a mask, then those on the diagonal and at the end, with one.  Tiles come through
    tensor descriptors (TMA) where rows lie close.  Programs with the most keys are started first.
Limit: D is padded to a power of two; float32 takes half the tile.
Try first: the sizes of WIDE_ (D above 64) and SLIM_ tiles, warps and stages.
"""

import functools

import torch
import triton
import triton.language as tl

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # before triton 3.4
    TensorDescriptor = None

KERNEL_TYPE = "flash_attention"
BACKEND = "triton"

WIDE_M = 128  # queries of a program where D is above 64; one of 64, 128, 256
WIDE_N = 128  # keys at a time; one of 32, 64, 128
WIDE_WARPS = 8  # tune: 4, 8, 16
WIDE_STAGES = 2  # tune: 2, 3, 4
SLIM_M = 128  # tune: 64, 128, 256
SLIM_N = 128  # tune: 32, 64, 128
SLIM_WARPS = 8  # tune: 4, 8
SLIM_STAGES = 3  # tune: 2, 3, 4
DESCRIBED = True  # whether tiles come through tensor descriptors, where they can
HEADS_FIRST = False  # whether neighbouring programs are of one head (False) or of one part of the queries


@triton.jit
def load_tile(
    desc, ptr, batch, h, begin, stride_s, stride_d, S, D: tl.constexpr,
    DESCRIBED: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Positions from ``begin`` on of one head, [BLOCK, BLOCK_D], with zeros beyond S and D."""
    if DESCRIBED:
        return tl.reshape(desc.load([batch, h, begin, 0]), (BLOCK, BLOCK_D))
    else:
        rows = (begin + tl.arange(0, BLOCK))[:, None]
        offs_d = tl.arange(0, BLOCK_D)[None, :]
        places = ptr + rows.to(tl.int64) * stride_s + offs_d * stride_d
        if WHOLE and D == BLOCK_D:
            return tl.load(places)
        else:
            return tl.load(places, mask=(rows < S) & (offs_d < D), other=0.0)


@triton.jit
def walk(
    acc, largest, total, q, k_desc, v_desc, k_ptr, v_ptr, k_s, k_d, v_s, v_d, batch, h, first, last, offs_m, S,
    scale_log2, D: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, POSITIVE: tl.constexpr,
    DESCRIBED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Go over the keys from ``first`` to ``last`` in tiles, with a mask or without."""
    for start in range(first, last, BLOCK_N):
        k = load_tile(k_desc, k_ptr, batch, h, start, k_s, k_d, S, D, DESCRIBED, not MASKED, BLOCK_N, BLOCK_D)
        scores = tl.dot(q, k.T, input_precision="ieee")  # float32 operands stay float32, not TF32
        if MASKED:
            offs_n = start + tl.arange(0, BLOCK_N)
            seen = offs_n[None, :] < S
            if CAUSAL:
                seen = seen & (offs_n[None, :] <= offs_m[:, None])
            scores = tl.where(seen, scores, -float("inf") if POSITIVE else float("inf"))
        # In powers of two: exp2 is the cheaper exp.  Finite: the first tile has key 0, seen by all.
        if POSITIVE:
            new_largest = tl.maximum(largest, tl.max(scores, axis=1) * scale_log2)
        else:
            new_largest = tl.maximum(largest, tl.min(scores, axis=1) * scale_log2)
        p = tl.exp2(scores * scale_log2 - new_largest[:, None])
        shrink = tl.exp2(largest - new_largest)
        total = total * shrink + tl.sum(p, axis=1)
        v = load_tile(v_desc, v_ptr, batch, h, start, v_s, v_d, S, D, DESCRIBED, not MASKED, BLOCK_N, BLOCK_D)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        largest = new_largest
    return acc, largest, total


@triton.jit
def attention_kernel(
    q_desc, k_desc, v_desc, q_ptr, k_ptr, v_ptr, o_ptr, q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d,
    H, S, scale_log2, D: tl.constexpr, CAUSAL: tl.constexpr, POSITIVE: tl.constexpr, DESCRIBED: tl.constexpr,
    HEADS_FIRST: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    if HEADS_FIRST:
        head, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    else:
        head, part, parts = tl.program_id(1), tl.program_id(0), tl.num_programs(0)
    if CAUSAL:
        part = parts - 1 - part  # those with the most keys first
    batch, h = head // H, head % H
    q_ptr += batch.to(tl.int64) * q_b + h.to(tl.int64) * q_h  # int64: head * stride can pass 2**31
    k_ptr += batch.to(tl.int64) * k_b + h.to(tl.int64) * k_h
    v_ptr += batch.to(tl.int64) * v_b + h.to(tl.int64) * v_h
    m = part * BLOCK_M
    offs_m = m + tl.arange(0, BLOCK_M)
    q = load_tile(q_desc, q_ptr, batch, h, m, q_s, q_d, S, D, DESCRIBED, False, BLOCK_M, BLOCK_D)

    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    if CAUSAL:
        whole, last = (m + 1) // BLOCK_N * BLOCK_N, tl.minimum(S, m + BLOCK_M)
    else:
        whole, last = S // BLOCK_N * BLOCK_N, S
    acc, largest, total = walk(
        acc, largest, total, q, k_desc, v_desc, k_ptr, v_ptr, k_s, k_d, v_s, v_d, batch, h, 0, whole, offs_m, S,
        scale_log2, D, False, CAUSAL, POSITIVE, DESCRIBED, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    acc, largest, total = walk(
        acc, largest, total, q, k_desc, v_desc, k_ptr, v_ptr, k_s, k_d, v_s, v_d, batch, h, whole, last, offs_m, S,
        scale_log2, D, True, CAUSAL, POSITIVE, DESCRIBED, BLOCK_N, BLOCK_D,
    )  # fmt: skip

    o = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
    offs_d = tl.arange(0, BLOCK_D)[None, :]
    o_ptrs = o_ptr + (head.to(tl.int64) * S + offs_m[:, None]) * D + offs_d
    tl.store(o_ptrs, o, mask=(offs_m[:, None] < S) & (offs_d < D))


@functools.cache
def describes(device):
    """Whether kernels for the device can use tensor descriptors; the interpreter on a CPU can."""
    return TensorDescriptor is not None and (device.type != "cuda" or torch.cuda.get_device_capability(device)[0] >= 9)


def describable(x):
    """Whether positions begin on 16 bytes and have no gaps."""
    aligned = all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:3])
    return x.element_size() == 2 and x.stride(3) == 1 and aligned and x.data_ptr() % 16 == 0


def kernel_fn(Q, K, V, causal=True, sm_scale=None):
    B, H, S, D = Q.shape
    scale = D**-0.5 if sm_scale is None else sm_scale
    out = torch.empty((B, H, S, D), device=Q.device, dtype=Q.dtype)

    if D > 64:
        block_m, block_n, warps, stages = WIDE_M, WIDE_N, WIDE_WARPS, WIDE_STAGES
    else:
        block_m, block_n, warps, stages = SLIM_M, SLIM_N, SLIM_WARPS, SLIM_STAGES
    if Q.element_size() == 4:  # twice the registers and shared memory
        block_m, block_n, stages = block_m // 2, max(16, block_n // 4), 2
    block_d = max(16, triton.next_power_of_2(D))
    use = DESCRIBED and describes(Q.device) and all(map(describable, (Q, K, V)))
    blocks = ([1, 1, block_m, block_d], [1, 1, block_n, block_d], [1, 1, block_n, block_d])
    pairs = zip((Q, K, V), blocks, strict=True)
    q, k, v = [TensorDescriptor.from_tensor(x, block) if use else None for x, block in pairs]
    parts = triton.cdiv(S, block_m)
    attention_kernel[(B * H, parts) if HEADS_FIRST else (parts, B * H)](
        q, k, v, Q, K, V, out, *Q.stride(), *K.stride(), *V.stride(), H, S, scale * 1.4426950408889634, D=D,
        CAUSAL=bool(causal), POSITIVE=scale >= 0, DESCRIBED=use, HEADS_FIRST=HEADS_FIRST,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_D=block_d, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
