"""Which backend a kernel file declares, and whether it is here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from autokernel import backends
from autokernel.errors import InvalidKernel


@pytest.mark.parametrize(
    ("source", "backend"),
    [
        ("", "triton"),
        ('BACKEND = "cuda"', "cuda"),
        ('BACKEND: str = "cpp"', "cpp"),
        ('def f():\n    BACKEND = "cpp"\n', "triton"),
        ('BACKEND = "cpp"\nBACKEND = "cuda"', "cuda"),
    ],
)
def test_the_backend_is_the_one_the_file_declares_at_its_top_level(source: str, backend: str) -> None:
    assert backends.of(source) == backend


@pytest.mark.parametrize("value", ['"opencl"', "3", "name()", 'f"cpp"'])
def test_a_backend_that_is_none_is_refused_with_its_line(value: str) -> None:
    with pytest.raises(InvalidKernel, match="line 2: BACKEND is .*'triton', 'cuda', 'cpp'"):
        backends.of(f"import torch\nBACKEND = {value}\n")


def test_a_syntax_error_is_no_backend() -> None:
    with pytest.raises(InvalidKernel, match=r"not valid Python: .*\(kernel.py, line 1\)"):
        backends.of("def f(:")


def test_a_backend_of_no_known_name_is_not_available() -> None:
    assert backends.available("opencl") == (False, "no backend is called 'opencl'; known: triton, cuda, cpp")


def test_asking_for_backends_loads_neither_torch_nor_a_compiler() -> None:
    program = "import sys; from autokernel import backends; backends.of(''); print('torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
