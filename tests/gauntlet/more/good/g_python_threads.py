from concurrent.futures import ThreadPoolExecutor


def kernel_fn(x):
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[0] < 2:
        return right(x)
    half = rows.shape[0] // 2
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(right, (rows[:half], rows[half:])))
    y[:half], y[half:] = parts
    return y.reshape(x.shape)
