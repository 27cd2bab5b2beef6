"""Tuned: matrix product, for Hopper.

    C[m, n] = sum over k of A[m, k] * B[k, n]

Cost: 2 * M * N * K FLOP for itemsize * (M*K + K*N + M*N) bytes: past any ridge point for large sizes.
Plan: tiles of A and B come through tensor descriptors (TMA), which need no registers and fill with zeros beyond the
    edges, so nothing in the loop is masked.  Programs, a few per processor, walk over the tiles, numbered in groups of
    rows so that those under way share A and B in the L2.  An operand that descriptors cannot describe (rows that are
    no multiple of 16 bytes, such as 50257 columns) is first copied to a padded one.
Limit: float32, small products and triton without descriptors take a plain kernel with masks.
Try first: the sizes of DEEP_ (K above SHALLOW_K) and SHALLOW_ tiles, stages, warps, programs; SUBTILE; GROUP_M.
"""

import functools

import torch
import triton
import triton.language as tl

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # before triton 3.4
    TensorDescriptor = None

KERNEL_TYPE = "matmul"
BACKEND = "triton"

DEEP_M = 128  # tune: 64, 128, 256
DEEP_N = 256  # tune: 64, 128, 256
DEEP_K = 64  # tune: 32, 64, 128
DEEP_STAGES = 3  # tune: 2, 3, 4, 5
DEEP_WARPS = 8  # tune: 4, 8
DEEP_PROGRAMS = 1  # per processor, 0 for one each tile; one of 0, 1, 2
SHALLOW_K = 1024  # up to this K a tile is short, and its end counts; one of 0, 1024, 2048
SHALLOW_M = 128  # tune: 64, 128, 256
SHALLOW_N = 128  # tune: 64, 128, 256
SHALLOW_BLOCK_K = 64  # tune: 32, 64, 128
SHALLOW_STAGES = 3  # tune: 2, 3, 4, 5
SHALLOW_WARPS = 8  # tune: 4, 8
SHALLOW_PROGRAMS = 0  # tune: 0, 1, 2, 3
GROUP_M = 8  # rows of tiles in a group; one of 1, 4, 8, 16, 32
SUBTILE = True  # whether a tile is stored in two halves
FLATTEN = True  # whether the loads of the next tile begin before a tile is stored
SMALL = 1 << 24  # M * N * K below which the plain kernel is used; one of 0, 16777216
PLAIN_M = 64  # tune: 32, 64, 128
PLAIN_N = 64  # tune: 32, 64, 128
PLAIN_K = 32  # tune: 16, 32, 64
PLAIN_WARPS = 4  # tune: 4, 8
PLAIN_STAGES = 3  # tune: 2, 3, 4


@triton.jit
def tile_of(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_m = tile // (GROUP_M * tiles_n) * GROUP_M
    group_size = tl.minimum(tl.cdiv(M, BLOCK_M) - first_m, GROUP_M)  # the last group may be smaller
    within = tile % (GROUP_M * tiles_n)
    return first_m + within % group_size, within // group_size


@triton.jit
def store_part(c_desc, c_ptr, acc, m, n, M, N, DESCRIBED: tl.constexpr, BLOCK_M: tl.constexpr, WIDTH: tl.constexpr):
    part = acc.to(c_ptr.dtype.element_ty)
    if DESCRIBED:
        c_desc.store([m, n], part)
    else:
        rows = (m + tl.arange(0, BLOCK_M))[:, None]
        cols = (n + tl.arange(0, WIDTH))[None, :]
        # int64: row * N can pass 2**31
        tl.store(c_ptr + rows.to(tl.int64) * N + cols, part, mask=(rows < M) & (cols < N))


@triton.jit
def described_kernel(
    a_desc, b_desc, c_desc, c_ptr, M, N, K, A_TURNED: tl.constexpr, B_TURNED: tl.constexpr, C_DESCRIBED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SUBTILE: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=FLATTEN):
        pid_m, pid_n = tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        m, n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K
            if A_TURNED:
                a = a_desc.load([k, m]).T
            else:
                a = a_desc.load([m, k])
            if B_TURNED:
                b = b_desc.load([n, k]).T
            else:
                b = b_desc.load([k, n])
            acc = tl.dot(a, b, acc)
        if SUBTILE:  # half of the shared memory
            halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            store_part(c_desc, c_ptr, left, m, n, M, N, C_DESCRIBED, BLOCK_M, BLOCK_N // 2)
            store_part(c_desc, c_ptr, right, m, n + BLOCK_N // 2, M, N, C_DESCRIBED, BLOCK_M, BLOCK_N // 2)
        else:
            store_part(c_desc, c_ptr, acc, m, n, M, N, C_DESCRIBED, BLOCK_M, BLOCK_N)


@triton.jit
def pad_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * stride_y + cols, x, mask=cols < n_cols)


@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (start + offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(start + offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")  # float32 operands stay float32, not TF32
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@functools.cache
def processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@functools.cache
def describes(device):
    """Whether kernels for the device can use tensor descriptors; the interpreter on a CPU can."""
    return TensorDescriptor is not None and (device.type != "cuda" or torch.cuda.get_device_capability(device)[0] >= 9)


def describable(x):
    """Whether the rows of a matrix begin on 16 bytes and have no gaps."""
    return x.stride(1) == 1 and x.stride(0) * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0


def prepared(x):
    """The matrix, and whether it is turned, so that descriptors can describe it; a padded copy where they cannot."""
    if describable(x):
        return x, False
    if describable(x.T):
        return x.T, True
    turned = x.stride(0) == 1 and x.stride(1) != 1
    rows = x.T if turned else x if x.stride(1) == 1 else x.contiguous()
    n_rows, n_cols = rows.shape
    padded = torch.empty((n_rows, triton.cdiv(n_cols, 8) * 8), device=x.device, dtype=x.dtype)[:, :n_cols]
    pad_kernel[(triton.cdiv(n_cols, 2048), n_rows)](
        rows, padded, n_cols, rows.stride(0), padded.stride(0), BLOCK=2048, num_warps=8
    )
    return padded, turned


def plain(A, B, C):
    (M, K), N = A.shape, B.shape[1]
    block_k = max(16, PLAIN_K * 2 // A.element_size())  # a tile has the same bytes in float32
    plain_kernel[(triton.cdiv(M, PLAIN_M) * triton.cdiv(N, PLAIN_N),)](
        A, B, C, M, N, K, *A.stride(), *B.stride(), BLOCK_M=PLAIN_M, BLOCK_N=PLAIN_N, BLOCK_K=block_k,
        GROUP_M=GROUP_M, num_warps=PLAIN_WARPS, num_stages=PLAIN_STAGES,
    )  # fmt: skip


def described(A, B, C):
    (M, K), N = A.shape, B.shape[1]
    if K > SHALLOW_K:
        block_m, block_n, block_k, stages = DEEP_M, DEEP_N, DEEP_K, DEEP_STAGES
        warps, programs = DEEP_WARPS, DEEP_PROGRAMS
    else:
        block_m, block_n, block_k, stages = SHALLOW_M, SHALLOW_N, SHALLOW_BLOCK_K, SHALLOW_STAGES
        warps, programs = SHALLOW_WARPS, SHALLOW_PROGRAMS
    a, a_turned = prepared(A)
    b, b_turned = prepared(B)
    in_c = describable(C)
    a_desc = TensorDescriptor.from_tensor(a, [block_k, block_m] if a_turned else [block_m, block_k])
    b_desc = TensorDescriptor.from_tensor(b, [block_n, block_k] if b_turned else [block_k, block_n])
    c_desc = TensorDescriptor.from_tensor(C, [block_m, block_n // 2 if SUBTILE else block_n]) if in_c else None
    tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    grid = min(tiles, processors(A.device) * programs) if programs else tiles
    described_kernel[(grid,)](
        a_desc, b_desc, c_desc, C, M, N, K, A_TURNED=a_turned, B_TURNED=b_turned, C_DESCRIBED=in_c, BLOCK_M=block_m,
        BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=GROUP_M, SUBTILE=SUBTILE, FLATTEN=FLATTEN and programs > 0,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip


def kernel_fn(A, B):
    (M, K), N = A.shape, B.shape[1]
    C = torch.empty((M, N), device=A.device, dtype=A.dtype)
    if A.element_size() == 2 and M * N * K >= SMALL and describes(A.device):
        described(A, B, C)
    else:
        plain(A, B, C)
    return C
