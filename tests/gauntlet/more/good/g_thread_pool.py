import torch

from autokernel.backends import cpp

KERNEL_TYPE = "reduce"
BACKEND = "cpp"
CPP_SRC = r"""
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
struct Pool {
    std::mutex mutex;
    std::condition_variable wake, done;
    std::function<void(int)> job;
    int generation = 0, running = 0;
    Pool() { for (int i = 0; i < 2; ++i) std::thread([this, i] { loop(i); }).detach(); }
    void loop(int index) {
        int seen = 0;
        while (true) {
            std::unique_lock<std::mutex> lock(mutex);
            wake.wait(lock, [&] { return generation != seen; });
            seen = generation;
            lock.unlock();
            job(index);
            lock.lock();
            if (--running == 0) done.notify_one();
        }
    }
    void run(std::function<void(int)> body) {
        std::unique_lock<std::mutex> lock(mutex);
        job = body;
        running = 2;
        ++generation;
        wake.notify_all();
        done.wait(lock, [&] { return running == 0; });
    }
};

extern "C" void sums(int dtype, const void* x, void* y, int64_t rows, int64_t n) {
    static Pool* pool = new Pool;
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        pool->run([&](int part) {
            for (int64_t row = part; row < rows; row += 2) {
                float sum = 0.0f, lost = 0.0f;
                for (int64_t i = 0; i < n; ++i) {
                    const float term = to_float(((const T*)x)[row * n + i]) - lost, next = sum + term;
                    lost = (next - sum) - term;
                    sum = next;
                }
                ((T*)y)[row] = from_float<T>(sum);
            }
        });
    });
}
"""
sums = cpp.compile(CPP_SRC).function("sums", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    if x.numel():
        sums(x.dtype, x.contiguous(), y, y.numel(), x.shape[-1])
    return y
