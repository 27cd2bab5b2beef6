"""Starter: gated feed-forward block of a transformer.

    hidden = act(x @ w_gate.T) * (x @ w_up.T);   y = hidden @ w_down.T

Cost: 2 * M * F * (2 * K + N) FLOP: past any ridge point for many rows.
Plan: a first kernel computes a tile of both projections side by side, so x is read once for the two, and writes only
    their gated product; a second one multiplies it by w_down.
Limit: hidden is written and read once more, rounded to x's dtype; every load is masked.
Try first: BLOCK_M, BLOCK_F, BLOCK_N, BLOCK_K, NUM_WARPS and NUM_STAGES; tiles in groups, as in the matmul starter;
    small BLOCK_M for few rows.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "fused_mlp"
BACKEND = "triton"

BLOCK_M = 128
BLOCK_F = 64  # columns of hidden per program: there are two sums, so half of BLOCK_N
BLOCK_N = 128
BLOCK_K = 64
NUM_WARPS = 8
NUM_STAGES = 3


@triton.jit
def load_tile(ptr, rows, cols, stride_row, stride_col, n_rows, n_cols):
    mask = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows.to(tl.int64) * stride_row + cols.to(tl.int64) * stride_col, mask=mask, other=0.0)


@triton.jit
def hidden_kernel(
    x_ptr, gate_ptr, up_ptr, hidden_ptr, M, F, K, x_m, x_k, gate_f, gate_k, up_f, up_k,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    f = (tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F))[None, :]
    gate = tl.zeros((BLOCK_M, BLOCK_F), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_F), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = load_tile(x_ptr, m, k[None, :], x_m, x_k, M, K)
        w_gate = load_tile(gate_ptr, k[:, None], f, gate_k, gate_f, K, F)  # transposed: [K, F]
        w_up = load_tile(up_ptr, k[:, None], f, up_k, up_f, K, F)
        gate = tl.dot(x, w_gate, gate, input_precision="ieee")  # float32 operands stay float32, not TF32
        up = tl.dot(x, w_up, up, input_precision="ieee")

    if ACTIVATION == "silu":
        gate = gate / (1.0 + tl.exp(-gate))
    elif ACTIVATION == "gelu":
        gate = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        gate = tl.maximum(gate, 0.0)
    hidden = (gate * up).to(hidden_ptr.dtype.element_ty)
    tl.store(hidden_ptr + m.to(tl.int64) * F + f, hidden, mask=(m < M) & (f < F))


@triton.jit
def down_kernel(
    hidden_ptr, down_ptr, y_ptr, M, N, F, down_n, down_f,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, F, BLOCK_K):
        f = start + tl.arange(0, BLOCK_K)
        hidden = load_tile(hidden_ptr, m, f[None, :], F, 1, M, F)
        w_down = load_tile(down_ptr, f[:, None], n, down_f, down_n, F, N)  # transposed: [F, N]
        acc = tl.dot(hidden, w_down, acc, input_precision="ieee")
    tl.store(y_ptr + m.to(tl.int64) * N + n, acc.to(y_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def kernel_fn(x, w_gate, w_up, w_down, activation="silu"):
    if activation not in ("silu", "gelu", "relu"):
        raise ValueError(f"unknown activation {activation!r}; known: silu, gelu, relu")
    F, K = w_gate.shape
    N = w_down.shape[0]
    rows = x.reshape(-1, K)
    M = rows.shape[0]
    hidden = torch.empty((M, F), device=x.device, dtype=x.dtype)
    y = torch.empty((*x.shape[:-1], N), device=x.device, dtype=x.dtype)

    options = {"BLOCK_M": BLOCK_M, "BLOCK_K": BLOCK_K * 2 // x.element_size(), "num_warps": NUM_WARPS}
    options["num_stages"] = NUM_STAGES
    hidden_kernel[(triton.cdiv(M, BLOCK_M), triton.cdiv(F, BLOCK_F))](
        rows, w_gate, w_up, hidden, M, F, K, *rows.stride(), *w_gate.stride(), *w_up.stride(),
        ACTIVATION=activation, BLOCK_F=BLOCK_F, **options,
    )  # fmt: skip
    down_kernel[(triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))](
        hidden, w_down, y, M, N, F, *w_down.stride(), BLOCK_N=BLOCK_N, **options
    )
    return y
