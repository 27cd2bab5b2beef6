"""Tuned: gated feed-forward block of a transformer, for Hopper.

    hidden = act(x @ w_gate.T) * (x @ w_up.T);   y = hidden @ w_down.T

Cost: 2 * M * F * (2 * K + N) FLOP: past any ridge point for many rows.
Plan: a first kernel computes a tile of both projections side by side, so x is read once for the two, and writes only
    their gated product; a second one multiplies it by w_down.  Tiles come through tensor descriptors (TMA), which
    fill with zeros beyond the edges; programs are numbered in groups of rows, so that those under way share tiles in
    the L2, and may walk over several tiles.
Limit: hidden is written and read once more, rounded to x's dtype; float32, rows that do not begin on 16 bytes and
    triton without descriptors take plain kernels with masks.
Try first: the sizes of GATE_ and DOWN_ tiles, stages, warps and programs; GROUP_M.
"""

import functools

import torch
import triton
import triton.language as tl

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # before triton 3.4
    TensorDescriptor = None

KERNEL_TYPE = "fused_mlp"
BACKEND = "triton"

GATE_M = 128  # tune: 64, 128, 256
GATE_F = 128  # columns of each projection; one of 64, 128
GATE_K = 64  # tune: 32, 64, 128
GATE_STAGES = 4  # tune: 2, 3, 4
GATE_WARPS = 8  # tune: 4, 8
GATE_PROGRAMS = 1  # per processor, 0 for one each tile; one of 0, 1, 2
DOWN_M = 128  # tune: 64, 128, 256
DOWN_N = 256  # tune: 64, 128, 256
DOWN_K = 64  # tune: 32, 64, 128
DOWN_STAGES = 3  # tune: 2, 3, 4, 5
DOWN_WARPS = 8  # tune: 4, 8
DOWN_PROGRAMS = 1  # tune: 0, 1, 2
GROUP_M = 8  # rows of tiles in a group; one of 1, 4, 8, 16, 32
FLATTEN = True  # whether the loads of the next tile begin before a tile is stored
SMALL = 1 << 24  # M * F * K below which the plain kernels are used; one of 0, 16777216
PLAIN_M = 64  # tune: 32, 64, 128
PLAIN_COLS = 64  # tune: 32, 64, 128
PLAIN_K = 32  # tune: 16, 32, 64
PLAIN_WARPS = 4  # tune: 4, 8


@triton.jit
def gated(gate, up, ACTIVATION: tl.constexpr):
    if ACTIVATION == "silu":
        gate = gate / (1.0 + tl.exp(-gate))
    elif ACTIVATION == "gelu":
        gate = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        gate = tl.maximum(gate, 0.0)
    return gate * up


@triton.jit
def tile_of(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_m = tile // (GROUP_M * tiles_n) * GROUP_M
    group_size = tl.minimum(tl.cdiv(M, BLOCK_M) - first_m, GROUP_M)  # the last group may be smaller
    within = tile % (GROUP_M * tiles_n)
    return (first_m + within % group_size) * BLOCK_M, within // group_size * BLOCK_N


@triton.jit
def gate_kernel(
    x_desc, gate_desc, up_desc, hidden_desc, M, F, K, ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(F, BLOCK_F)
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=FLATTEN):
        m, f = tile_of(tile, M, F, BLOCK_M, BLOCK_F, GROUP_M)
        gate = tl.zeros((BLOCK_M, BLOCK_F), dtype=tl.float32)
        up = tl.zeros((BLOCK_M, BLOCK_F), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            x = x_desc.load([m, step * BLOCK_K])
            gate = tl.dot(x, gate_desc.load([f, step * BLOCK_K]).T, gate)
            up = tl.dot(x, up_desc.load([f, step * BLOCK_K]).T, up)
        hidden_desc.store([m, f], gated(gate, up, ACTIVATION).to(hidden_desc.dtype))


@triton.jit
def down_kernel(
    hidden_desc, down_desc, y_ptr, M, N, F,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=FLATTEN):
        m, n = tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(F, BLOCK_K)):
            hidden = hidden_desc.load([m, step * BLOCK_K])
            acc = tl.dot(hidden, down_desc.load([n, step * BLOCK_K]).T, acc)
        rows = (m + tl.arange(0, BLOCK_M))[:, None]
        cols = (n + tl.arange(0, BLOCK_N))[None, :]
        # int64: row * N can pass 2**31
        y_ptrs = y_ptr + rows.to(tl.int64) * N + cols
        tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def load_tile(ptr, rows, cols, stride_row, stride_col, n_rows, n_cols):
    mask = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows.to(tl.int64) * stride_row + cols.to(tl.int64) * stride_col, mask=mask, other=0.0)


@triton.jit
def plain_kernel(
    x_ptr, gate_ptr, up_ptr, y_ptr, M, N, K, x_m, x_k, gate_n, gate_k, up_n, up_k,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One projection of x, or, with an activation, the gated product of two."""
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    y = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = load_tile(x_ptr, m, k[None, :], x_m, x_k, M, K)
        w_gate = load_tile(gate_ptr, k[:, None], n, gate_k, gate_n, K, N)  # transposed: [K, N]
        y = tl.dot(x, w_gate, y, input_precision="ieee")  # float32 operands stay float32, not TF32
        if ACTIVATION != "":
            w_up = load_tile(up_ptr, k[:, None], n, up_k, up_n, K, N)
            up = tl.dot(x, w_up, up, input_precision="ieee")
    if ACTIVATION != "":
        y = gated(y, up, ACTIVATION)
    tl.store(y_ptr + m.to(tl.int64) * N + n, y.to(y_ptr.dtype.element_ty), mask=(m < M) & (n < N))


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


def grid_of(M, N, block_m, block_n, programs, device):
    tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    return (min(tiles, processors(device) * programs) if programs else tiles,)


def described(rows, w_gate, w_up, w_down, hidden, y, activation):
    (M, K), F, N = rows.shape, w_gate.shape[0], w_down.shape[0]
    of = TensorDescriptor.from_tensor
    gate_kernel[grid_of(M, F, GATE_M, GATE_F, GATE_PROGRAMS, rows.device)](
        of(rows, [GATE_M, GATE_K]), of(w_gate, [GATE_F, GATE_K]), of(w_up, [GATE_F, GATE_K]),
        of(hidden, [GATE_M, GATE_F]), M, F, K, ACTIVATION=activation, BLOCK_M=GATE_M, BLOCK_F=GATE_F, BLOCK_K=GATE_K,
        GROUP_M=GROUP_M, FLATTEN=FLATTEN and GATE_PROGRAMS > 0, num_warps=GATE_WARPS, num_stages=GATE_STAGES,
    )  # fmt: skip
    down_kernel[grid_of(M, N, DOWN_M, DOWN_N, DOWN_PROGRAMS, rows.device)](
        of(hidden, [DOWN_M, DOWN_K]), of(w_down, [DOWN_N, DOWN_K]), y, M, N, F, BLOCK_M=DOWN_M, BLOCK_N=DOWN_N,
        BLOCK_K=DOWN_K, GROUP_M=GROUP_M, FLATTEN=FLATTEN and DOWN_PROGRAMS > 0, num_warps=DOWN_WARPS,
        num_stages=DOWN_STAGES,
    )  # fmt: skip


def plain(rows, w_gate, w_up, y, activation):
    (M, K), N = rows.shape, w_gate.shape[0]
    plain_kernel[(triton.cdiv(M, PLAIN_M), triton.cdiv(N, PLAIN_COLS))](
        rows, w_gate, w_up, y, M, N, K, *rows.stride(), *w_gate.stride(), *w_up.stride(), ACTIVATION=activation,
        BLOCK_M=PLAIN_M, BLOCK_N=PLAIN_COLS, BLOCK_K=max(16, PLAIN_K * 2 // rows.element_size()),
        num_warps=PLAIN_WARPS,
    )  # fmt: skip


def kernel_fn(x, w_gate, w_up, w_down, activation="silu"):
    if activation not in ("silu", "gelu", "relu"):
        raise ValueError(f"unknown activation {activation!r}; known: silu, gelu, relu")
    (F, K), N = w_gate.shape, w_down.shape[0]
    rows = x.reshape(-1, K)
    M = rows.shape[0]
    hidden = torch.empty((M, F), device=x.device, dtype=x.dtype)
    y = torch.empty((*x.shape[:-1], N), device=x.device, dtype=x.dtype)
    fits = x.element_size() == 2 and M * F * K >= SMALL and describes(x.device)
    if fits and all(map(describable, (rows, w_gate, w_up, w_down, hidden))):
        described(rows, w_gate, w_up, w_down, hidden, y.view(M, N), activation)
    else:
        plain(rows, w_gate, w_up, hidden, activation)
        plain(hidden, w_down, w_down, y.view(M, N), "")
    return y
