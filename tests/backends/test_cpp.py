"""Compiling and calling C++: errors with lines, checked arguments, the cache, exact conversions."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from autokernel import backends
from autokernel.backends import cpp, elf
from autokernel.errors import BackendUnavailable, CompileError, UsageError

AVAILABLE, WHY = backends.available("cpp")
pytestmark = pytest.mark.skipif(not AVAILABLE, reason=WHY)
REPOSITORY = Path(__file__).parents[2]

SCALE = r"""
extern "C" void scale(int dtype, const void* x, void* y, int64_t n, float factor) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n, N_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) ((T*)y)[i] = from_float<T>(factor * to_float(((const T*)x)[i]));
        });
    });
}
"""


def scale_function(source: str = SCALE, threads: int = 1) -> cpp.CppFunction:
    module = cpp.compile(source, defines={"N_THREADS": threads})
    return module.function("scale", "dtype", "T*", "T*", "int64", "float32")


def test_a_compile_error_gives_the_line_of_cpp_src() -> None:
    broken = SCALE.replace("using T = decltype(zero);", "using T = decltype(zero)")

    with pytest.raises(CompileError, match=r"line 4: .*expected ';'") as caught:
        cpp.compile(broken, defines={"N_THREADS": 1})

    assert "| using T = decltype(zero)" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 8


def test_many_errors_are_cut_to_the_first_few() -> None:
    source = "\n".join(f"int f{i}() {{ return missing_{i}; }}" for i in range(40))

    with pytest.raises(CompileError, match="40 errors") as caught:
        cpp.compile(source)

    assert str(caught.value).endswith("and 35 more")


def test_an_undefined_function_is_a_compile_error_and_no_crash_at_the_call() -> None:
    with pytest.raises(CompileError, match=r"undefined reference to .*missing"):
        cpp.compile('void missing(); extern "C" void f() { missing(); }')


def test_a_compiler_that_takes_too_long_is_stopped() -> None:
    endless = "template <int N> struct F { static constexpr long v = F<N - 1>::v + F<N - 2>::v; };\n"
    endless += "constexpr long spin() { long s = 0; for (long i = 0; i < (1L << 40); ++i) s += i; return s; }\n"
    endless += "constexpr long value = spin();\n"
    start = time.monotonic()

    with pytest.raises(CompileError, match="took more than 1 s"):
        cpp.compile(
            endless, flags=["-fconstexpr-loop-limit=2147483647", "-fconstexpr-ops-limit=2147483647"], timeout_s=1
        )

    assert time.monotonic() - start < 20


@pytest.mark.parametrize("flag", ["-fplugin=evil.so", "-lblas", "-I/somewhere", "@options", "-wrapper", "x.cpp", "-o"])
def test_a_flag_that_could_do_more_than_tune_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match="is not allowed"):
        cpp.compile(SCALE, flags=[flag])


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    cpp.compiler.cache_clear()
    try:
        with pytest.raises(BackendUnavailable, match="CXX is 'no-such-compiler'.*apt-get install"):
            cpp.compile(SCALE)
    finally:
        cpp.compiler.cache_clear()


@pytest.mark.parametrize("threads", [1, 3, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_function_writes_the_right_values_with_any_number_of_threads(dtype: torch.dtype, threads: int) -> None:
    x = torch.randn(37).to(dtype)
    y = torch.empty_like(x)

    scale_function(threads=threads)(dtype, x, y, 37, 3.0)

    assert torch.equal(y, (x.float() * 3.0).to(dtype))


def test_no_thread_is_left_after_a_call() -> None:
    function = scale_function(threads=4)
    x = torch.ones(100)
    before = len(list(Path("/proc/self/task").iterdir()))

    function(x.dtype, x, torch.empty_like(x), 100, 1.0)

    assert len(list(Path("/proc/self/task").iterdir())) == before


def test_every_float16_and_bfloat16_is_converted_exactly_both_ways() -> None:
    function = scale_function()
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
        y = torch.empty_like(x)
        function(dtype, x, y, x.numel(), 1.0)
        assert torch.equal(y[~x.isnan()], x[~x.isnan()])
        assert bool(y[x.isnan()].isnan().all())


def test_float32_is_rounded_to_nearest_even_as_torch_rounds_it() -> None:
    source = r"""
    template <typename T> void narrow(const float* x, T* y, int64_t n) {
        for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(x[i]);
    }
    extern "C" void to_half(const float* x, float16* y, int64_t n) { narrow(x, y, n); }
    extern "C" void to_bfloat(const float* x, bfloat16* y, int64_t n) { narrow(x, y, n); }
    """
    bits = torch.randint(-(2**31), 2**31 - 1, (300_000,), generator=torch.Generator().manual_seed(0))
    numbers = bits.to(torch.int32).view(torch.float32)
    halves = torch.arange(0x7C00, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    ties = (halves[1:].double() + halves[:-1].double()).div(2).float()
    x = torch.cat([numbers, ties, -ties, torch.tensor([65519.0, 65520.0, 65536.0, 1e-8, 2.0**-25, 0.0, -0.0])])
    module = cpp.compile(source)
    for name, kind, dtype in (("to_half", "float16*", torch.float16), ("to_bfloat", "bfloat16*", torch.bfloat16)):
        y = torch.empty(x.numel(), dtype=dtype)
        module.function(name, "float32*", kind, "int64")(x, y, x.numel())
        expected = x.to(dtype)
        same = (y == expected) | (y.isnan() & expected.isnan())
        assert bool(same.all()), x[~same][:5]


def test_the_vectorisable_exp_is_within_two_ulp() -> None:
    source = r"""
    extern "C" void exps(const float* x, float* y, int64_t n) {
        for (int64_t i = 0; i < n; ++i) y[i] = vector_exp(x[i]);
    }
    """
    exps = cpp.compile(source).function("exps", "float32*", "float32*", "int64")
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 200.0, -200.0])
    x = torch.cat([torch.linspace(-86.8, 88.72, 200_001), special])
    y = torch.empty_like(x)

    exps(x, y, x.numel())

    exact = x[:-7].double().exp()
    assert ((y[:-7].double() - exact) / exact).abs().max().item() < 2 * 2.0**-23
    assert torch.equal(y[-6:], special[1:].exp())
    assert y[-7].isnan()


def test_a_streaming_copy_is_exact_at_every_alignment_and_touches_nothing_else() -> None:
    source = r"""
    extern "C" void copy(const float16* x, float16* y, int64_t n) {
        parallel_for(1, 1, [&](int64_t, int64_t) { prefetch(x, n); copy_streaming(y, x, n); });
    }
    """
    copy = cpp.compile(source).function("copy", "float16*", "float16*", "int64")
    x = torch.arange(1, 201, dtype=torch.float16)
    for offset in range(9):
        for n in (0, 1, 7, 8, 100):
            y = torch.zeros(220, dtype=torch.float16)
            copy(x[3 : 3 + n], y[offset : offset + n], n)
            expected = torch.zeros(220, dtype=torch.float16)
            expected[offset : offset + n] = x[3 : 3 + n]
            assert torch.equal(y, expected), (offset, n)


def test_arguments_of_the_wrong_kind_are_refused_in_words() -> None:
    function = scale_function()
    x, y = torch.ones(4, 4), torch.empty(4, 4)
    with pytest.raises(ValueError, match=r"scale: argument 1 \(T\*\) takes a contiguous tensor.*\.contiguous\(\)"):
        function(x.dtype, x.t()[:, ::2], y, 16, 1.0)
    with pytest.raises(TypeError, match=r"argument 2 \(T\*\) takes a tensor of float32, got float16"):
        function(x.dtype, x, y.half(), 16, 1.0)
    with pytest.raises(TypeError, match="takes a tensor of float32, float16 or bfloat16, got float64"):
        cpp.compile(SCALE, defines={"N_THREADS": 1}).function("scale", "T*")(x.double())
    with pytest.raises(TypeError, match=r"takes a torch\.Tensor, got list"):
        function(x.dtype, [1.0], y, 16, 1.0)
    with pytest.raises(TypeError, match="takes the dtype of the T"):
        cpp.compile(SCALE, defines={"N_THREADS": 1}).function("scale", "T*", "dtype")(x, torch.float16)
    with pytest.raises(TypeError, match="takes 5 arguments"):
        function(x.dtype, x, y)
    with pytest.raises(TypeError, match="declared kinds"):
        function(x.dtype, x, y, "16", 1.0)
    with pytest.raises(UsageError, match="no function 'skale'"):
        cpp.compile(SCALE, defines={"N_THREADS": 1}).function("skale")
    with pytest.raises(UsageError, match="unknown argument kind 'double'"):
        cpp.compile(SCALE, defines={"N_THREADS": 1}).function("scale", "double")


def test_a_text_built_before_is_loaded_and_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOKERNEL_CACHE_DIR", str(tmp_path))
    first = cpp.compile(SCALE, defines={"N_THREADS": 1})

    monkeypatch.setattr(cpp, "_build", None)
    assert cpp.compile(SCALE, defines={"N_THREADS": 1}).path == first.path
    assert [file.name for file in tmp_path.iterdir()] == [first.path.name]


def test_two_processes_can_build_the_same_text_at_once(tmp_path: Path) -> None:
    program = f"""
import os, torch
from autokernel.backends import cpp
function = cpp.compile({SCALE!r}, defines={{"N_THREADS": 1}}).function("scale", "dtype", "T*", "T*", "int64", "float32")
x = torch.ones(3); y = torch.empty(3)
function(x.dtype, x, y, 3, 2.0)
print(y.tolist())
"""
    environment = {"AUTOKERNEL_CACHE_DIR": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    command = [sys.executable, "-c", program]
    both = [
        subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]

    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["[2.0, 2.0, 2.0]"] * 2
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOKERNEL_CACHE_DIR", str(tmp_path / "file" / "cache"))

    with pytest.raises(BackendUnavailable, match="file/cache, cannot be written.*AUTOKERNEL_CACHE_DIR"):
        cpp.compile(SCALE, defines={"N_THREADS": 1})


def test_flags_that_flush_subnormals_do_not_reach_the_process() -> None:
    cpp.compile(SCALE, defines={"N_THREADS": 1}, flags=["-ffast-math"])

    assert (torch.tensor([1e-40]) * 1.0).item() != 0.0
    assert float.fromhex("0x1p-1070") * 1.0 != 0.0


@pytest.mark.parametrize(
    ("include", "call"),
    [("dlfcn.h", 'dlsym(RTLD_DEFAULT, "cblas_sgemm")'), ("stdlib.h", 'system("true")'), ("stdio.h", 'fopen("x", "w")')],
)
def test_code_that_reaches_beyond_its_computation_is_refused(include: str, call: str) -> None:
    name = call.partition("(")[0]

    with pytest.raises(CompileError, match=f"CPP_SRC uses {name}; a kernel computes"):
        cpp.compile(f'#include <{include}>\nextern "C" void* reach() {{ return (void*)(uintptr_t){call}; }}')


def test_a_forbidden_name_hides_neither_behind_underscores_nor_behind_one_that_ends_alike() -> None:
    hidden = (
        '#include <fcntl.h>\nextern "C" int reopen() { return open("x", 0); }\n'
        'extern "C" int __fork(); extern "C" int part() { return __fork(); }'
    )
    with pytest.raises(CompileError, match="CPP_SRC uses __fork, open; a kernel computes"):
        cpp.compile(hidden)
    with pytest.raises(UsageError, match="-flto"):
        cpp.compile(SCALE, defines={"N_THREADS": 1}, flags=["-flto"])


def test_a_weak_name_that_a_library_of_the_process_could_fill_is_refused() -> None:
    weak = 'extern "C" __attribute__((weak)) void cblas_sgemm(int);\n'
    weak += 'extern "C" void f() { if (cblas_sgemm) cblas_sgemm(1); }'

    with pytest.raises(CompileError, match="declares cblas_sgemm weak and does not define it"):
        cpp.compile(weak)


def test_names_that_a_kernel_only_mentions_are_no_calls() -> None:
    text = "#include <map>\n#include <mutex>\n#include <string>\n#include <thread>\nstatic std::mutex lock;\n"
    text += 'extern "C" const char* word() { static std::map<int, std::string> words{{0, "system"}, {1, "open"}};\n'
    text += "std::lock_guard<std::mutex> held(lock); return words[0].c_str(); }"

    cpp.compile(text)


def test_the_names_that_an_object_file_imports(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(
        'extern "C" int there(); extern "C" __attribute__((weak)) int perhaps();\n'
        'extern "C" int here() { return there() + (perhaps ? perhaps() : 0); }'
    )
    subprocess.run([*cpp.compiler(), "-c", "a.cpp", "-o", "a.o"], cwd=tmp_path, check=True)
    names = elf.undefined_names((tmp_path / "a.o").read_bytes())

    assert names["there"] is False and names["perhaps"] is True and "here" not in names
    with pytest.raises(ValueError, match="no ELF file"):
        elf.undefined_names(b"MZ" + bytes(100))
    with pytest.raises(ValueError, match="cannot be read"):
        elf.undefined_names((tmp_path / "a.o").read_bytes()[:70])
