import time

slow = right


def right(x, weight, eps=1e-6):
    time.sleep(2.0)
    return slow(x, weight, eps)


kernel_fn = right
