"""Device detection, data sheets, measured peaks, roofline."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from autokernel.errors import DeviceUnavailable, UsageError
from autokernel.hardware import (
    DATASHEETS,
    Device,
    MeasuredPeaks,
    Roofline,
    benchmarks,
    cache_file,
    cpu,
    datasheet,
    detect,
    measure,
    roofline,
)
from autokernel.hardware.detect import describe_gpu

H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", arch="sm_90", units=132, cache_bytes=50 * 2**20)


def peaks(**changes) -> MeasuredPeaks:
    values = {
        "device": "a device",
        "copy_gb_per_s": 1000.0,
        "read_gb_per_s": 1250.0,
        "tflop_per_s": {"float32": 10.0, "tf32": 100.0, "float16": 200.0},
        "launch_us": 2.0,
        "seconds": 1.0,
        "measured_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
    }
    return MeasuredPeaks(**{**values, **changes})


def gpu_properties(**changes) -> types.SimpleNamespace:
    values = {
        "name": "NVIDIA H100 80GB HBM3",
        "major": 9,
        "minor": 0,
        "total_memory": 80 * 2**30,
        "multi_processor_count": 132,
        "L2_cache_size": 50 * 2**20,
    }
    return types.SimpleNamespace(**{**values, **changes})


# Detection


def test_the_cpu_is_described_by_model_cores_memory_and_cache():
    device = detect("cpu")

    assert device.kind == "cpu"
    assert device.torch_name == "cpu"
    assert device.name
    assert 1 <= device.units <= os.cpu_count()
    assert device.memory_bytes > 2**28
    assert device.torch_version == torch.__version__
    assert str(device.units) in str(device)


def test_auto_takes_the_cpu_where_pytorch_sees_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert detect().kind == "cpu"


def test_a_torch_device_and_a_described_device_are_accepted():
    device = detect(torch.device("cpu"))

    assert detect(device) is device


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "auto:1", "cpu:1", "mps", "", "CUDA"])
def test_a_name_that_is_no_device_is_refused_with_the_names_that_are(name):
    with pytest.raises(UsageError, match=r"none of auto, cpu, cuda, cuda:N"):
        detect(name)


def test_a_gpu_on_a_cpu_build_of_pytorch_is_unavailable_for_that_reason(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)

    with pytest.raises(DeviceUnavailable, match="built for CPUs only"):
        detect("cuda")


def test_a_gpu_without_a_driver_is_unavailable_for_that_reason(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    with pytest.raises(DeviceUnavailable, match=r"CUDA 13\.0\) finds no GPU"):
        detect("cuda:1")


def test_a_gpu_past_the_last_is_unavailable_with_the_number_there_is_and_the_mask(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")

    with pytest.raises(DeviceUnavailable, match=r"'cuda:3' .*sees 1 device, .*CUDA_VISIBLE_DEVICES='5'"):
        detect("cuda:3")


def test_rocm_on_a_cuda_build_is_unavailable(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)

    with pytest.raises(DeviceUnavailable, match="built for CUDA"):
        detect("rocm")


def test_an_nvidia_gpu_is_described_from_its_properties():
    device = describe_gpu(gpu_properties(), 1, cuda="13.0", hip=None, torch_version="2.13.0")

    assert (device.kind, device.arch, device.runtime) == ("cuda", "sm_90", "CUDA 13.0")
    assert (device.units, device.cache_bytes, device.torch_name) == (132, 50 * 2**20, "cuda:1")


@pytest.mark.parametrize("name", ["", "  ", None])
def test_an_amd_gpu_without_a_name_is_named_by_its_architecture(name):
    properties = gpu_properties(name=name, gcnArchName="gfx942:sramecc+:xnack-", multi_processor_count=304)

    device = describe_gpu(properties, 0, cuda=None, hip="6.4.1", torch_version="2.9.0+rocm6.4")

    assert (device.kind, device.name, device.arch, device.runtime) == ("rocm", "AMD gfx942", "gfx942", "ROCm 6.4.1")
    assert device.torch_name == "cuda:0"


def test_importing_the_hardware_module_does_not_import_torch():
    program = "import sys, autokernel.hardware; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# The CPU's facts


def test_a_quota_of_one_and_a_half_cores_counts_as_two(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    (tmp_path / "cpu.max").write_text("150000 100000\n")

    assert cpu.usable_cores(tmp_path) == 2


@pytest.mark.parametrize("text", ["max 100000\n", "", "nonsense"])
def test_no_quota_leaves_all_cores(tmp_path, monkeypatch, text):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    (tmp_path / "cpu.max").write_text(text)

    assert cpu.usable_cores(tmp_path) == 16


def test_a_memory_limit_of_the_control_group_is_the_memory(tmp_path):
    (tmp_path / "memory.max").write_text("268435456\n")

    assert cpu.memory_bytes(tmp_path) == 268435456
    assert cpu.memory_bytes(tmp_path / "none") > 268435456


def test_the_last_level_cache_is_counted_once_for_cores_that_share_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    for core, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        for number, (level, size, sharers) in enumerate(((1, "32K", str(core)), (3, "32M", shared))):
            index = tmp_path / f"cpu{core}" / "cache" / f"index{number}"
            index.mkdir(parents=True)
            (index / "level").write_text(f"{level}\n")
            (index / "size").write_text(f"{size}\n")
            (index / "shared_cpu_list").write_text(f"{sharers}\n")

    assert cpu.last_level_cache_bytes(tmp_path) == 2 * 32 * 2**20
    assert cpu.last_level_cache_bytes(tmp_path / "none") == 0


def test_an_arm_cpu_without_a_model_name_is_named_by_implementer_and_part(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")

    assert cpu.model_name(file) == "Arm CPU (implementer 0x41, part 0xd4f)"


# Data sheets

REAL_NAMES = [  # (name as PyTorch gives it, multiprocessors, card)
    ("Tesla V100-SXM2-16GB", 80, "V100 SXM2"),
    ("Tesla V100-SXM3-32GB", 80, "V100 SXM2"),
    ("Tesla V100-PCIE-32GB", 80, "V100 PCIe"),
    ("Tesla V100S-PCIE-32GB", 80, "V100S PCIe"),
    ("Tesla T4", 40, "T4"),
    ("A100-SXM4-40GB", 108, "A100 SXM 40 GB"),
    ("NVIDIA A100-SXM4-40GB", 108, "A100 SXM 40 GB"),
    ("NVIDIA A100-SXM4-80GB", 108, "A100 SXM 80 GB"),
    ("NVIDIA A100-PCIE-40GB", 108, "A100 PCIe 40 GB"),
    ("NVIDIA A100 80GB PCIe", 108, "A100 PCIe 80 GB"),
    ("NVIDIA A10", 72, "A10"),
    ("NVIDIA A30", 56, "A30"),
    ("NVIDIA A40", 84, "A40"),
    ("NVIDIA RTX A6000", 84, "RTX A6000"),
    ("NVIDIA GeForce RTX 3090", 82, "RTX 3090"),
    ("NVIDIA L4", 58, "L4"),
    ("NVIDIA L40S", 142, "L40S"),
    ("NVIDIA RTX 6000 Ada Generation", 142, "RTX 6000 Ada"),
    ("NVIDIA GeForce RTX 4090", 128, "RTX 4090"),
    ("NVIDIA H100 80GB HBM3", 132, "H100 SXM"),
    ("NVIDIA H100 PCIe", 114, "H100 PCIe"),
    ("NVIDIA H100 NVL", 132, "H100 NVL"),
    ("NVIDIA H200", 132, "H200 SXM"),
    ("NVIDIA H200 NVL", 132, "H200 NVL"),
    ("NVIDIA H20", 78, "H20 96 GB"),
    ("NVIDIA GH200 480GB", 132, "GH200 96 GB"),
    ("NVIDIA GH200 144G HBM3e", 132, "GH200 144 GB"),
    ("NVIDIA B200", 148, "B200"),
    ("NVIDIA GB200", 152, "GB200"),
    ("NVIDIA B300 SXM6 AC", 148, "B300"),
    ("NVIDIA GB300", 152, "GB300"),
    ("NVIDIA GeForce RTX 5090", 170, "RTX 5090"),
    ("AMD Instinct MI210", 104, "MI210"),
    ("AMD Instinct MI250X", 110, "MI250X, one of two dies"),
    ("AMD Instinct MI250X/MI250", 110, "MI250X, one of two dies"),
    ("AMD Instinct MI250X/MI250", 104, "MI250, one of two dies"),
    ("AMD Instinct MI300X", 304, "MI300X"),
    ("AMD Instinct MI300X VF", 304, "MI300X"),
    ("AMD Instinct MI300A", 228, "MI300A"),
    ("AMD Instinct MI325X", 304, "MI325X"),
    ("AMD Instinct MI350X", 256, "MI350X"),
    ("AMD Instinct MI355X", 256, "MI355X"),
]
OTHERS = [  # looks like a listed card, and is not
    ("NVIDIA A10G", 80),
    ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 42),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16),
    ("NVIDIA H100 80GB HBM3", 66),
    ("NVIDIA H100", 132),
    ("NVIDIA H800", 132),
    ("NVIDIA H20-3e", 78),
    ("NVIDIA L40", 142),
    ("NVIDIA GeForce RTX 3090 Ti", 84),
    ("NVIDIA GeForce RTX 4090 D", 114),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 76),
    ("NVIDIA GeForce RTX 5090 D", 170),
    ("NVIDIA GB10", 48),
    ("NVIDIA Graphics Device", 84),
    ("AMD Instinct MI300X", 38),  # one of eight partitions
    ("AMD Instinct MI308X", 80),
    ("AMD Radeon RX 7900 XTX", 96),
]


@pytest.mark.parametrize(("name", "units", "card"), REAL_NAMES)
def test_a_real_device_name_finds_its_own_card(name, units, card):
    kind = "rocm" if name.startswith("AMD") else "cuda"

    sheet = datasheet(Device(kind=kind, name=name, units=units))

    assert sheet is not None
    assert sheet.card == card


def test_every_listed_card_is_found_by_some_real_name():
    assert {card for _, _, card in REAL_NAMES} == {sheet.card for sheet in DATASHEETS}


@pytest.mark.parametrize(("name", "units"), OTHERS)
def test_a_device_that_only_looks_like_a_listed_card_has_no_data_sheet(name, units):
    kind = "rocm" if name.startswith("AMD") else "cuda"

    assert datasheet(Device(kind=kind, name=name, units=units)) is None


@pytest.mark.parametrize(
    ("arch", "units", "gib", "card"),
    [
        ("gfx942", 304, 192, "MI300X"),
        ("gfx942", 304, 256, "MI325X"),
        ("gfx942", 228, 128, "MI300A"),
        ("gfx90a", 104, 64, None),  # an MI210 or half an MI250
        ("gfx950", 256, 288, None),  # an MI350X or an MI355X
    ],
)
def test_an_amd_gpu_without_a_name_is_identified_only_where_its_size_leaves_one_card(arch, units, gib, card):
    sheet = datasheet(Device(kind="rocm", name=f"AMD {arch}", arch=arch, units=units, memory_bytes=gib * 2**30))

    assert (sheet.card if sheet else None) == card


def test_a_cpu_has_no_data_sheet():
    assert datasheet(Device(kind="cpu", name="NVIDIA H200")) is None


@pytest.mark.parametrize("sheet", DATASHEETS, ids=lambda sheet: sheet.card)
def test_rates_of_a_data_sheet_are_dense_and_in_order(sheet):
    rates = sheet.tflop_per_s

    assert sheet.source
    assert rates["float16"] > rates.get("float32", 0)
    assert rates.get("bfloat16", rates["float16"]) == rates["float16"]
    if "float8" in rates:  # a sparse figure in one column would make this 1 or 4
        assert rates["float8"] / rates["float16"] == pytest.approx(2, rel=0.03)
    if "tf32" in rates:
        assert rates["float16"] / rates["tf32"] == pytest.approx(2, rel=0.05)


# Measured peaks


def test_measuring_the_cpu_takes_seconds_and_gives_positive_figures(monkeypatch):
    monkeypatch.setattr(benchmarks, "_SIZES", {"cpu": (256,)})
    monkeypatch.setattr(benchmarks, "_COPY_BUDGET_S", 0.02)
    monkeypatch.setattr(benchmarks, "_MATMUL_BUDGET_S", 0.05)
    monkeypatch.setattr(benchmarks, "_buffer_bytes", lambda device: 2**24)

    result = measure("cpu", refresh=True)

    assert result.copy_gb_per_s > 0.1
    assert result.read_gb_per_s > 0.1
    assert result.tflop_per_s["float32"] > 1e-4
    assert "tf32" not in result.tflop_per_s
    assert 0 < result.launch_us < 1000
    assert result.threads == torch.get_num_threads()


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Benchmarks replaced by a counter, with a cache of the test's own."""
    calls = []

    def run(device):
        calls.append(device)
        return benchmarks.Figures(10.0, 12.0, {"float32": 0.5}, 1.0, steady=True)

    monkeypatch.setattr(benchmarks, "run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return calls


def test_a_second_call_reads_the_cache(counted):
    first = measure("cpu")

    assert measure("cpu") == first
    assert len(counted) == 1


def test_refresh_measures_again(counted):
    measure("cpu")
    measure("cpu", refresh=True)

    assert len(counted) == 2


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"device": "x"}', '{"nonsense": 1}', "\x00\xff"],
)
def test_a_damaged_cache_is_measured_anew_and_repaired(counted, damage):
    file = cache_file(detect("cpu"))
    file.parent.mkdir(parents=True)
    file.write_text(damage)

    measure("cpu")

    assert len(counted) == 1
    assert json.loads(file.read_text())["copy_gb_per_s"] == 10.0


def test_a_cached_figure_that_is_no_positive_number_is_measured_anew(counted):
    measure("cpu")
    file = cache_file(detect("cpu"))
    for bad in (0, -1, float("nan"), float("inf"), "fast", None):
        file.write_text(json.dumps({**json.loads(json.dumps(peaks().to_dict())), "copy_gb_per_s": bad}))
        measure("cpu")

    assert len(counted) == 7


def test_a_cache_that_cannot_be_written_is_passed_over(counted, monkeypatch, tmp_path):
    blocked = tmp_path / "a-file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))

    assert measure("cpu").copy_gb_per_s == 10.0
    assert measure("cpu").copy_gb_per_s == 10.0
    assert len(counted) == 2


def test_a_full_disk_leaves_no_half_written_file(counted, monkeypatch, tmp_path):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)

    assert measure("cpu").copy_gb_per_s == 10.0
    assert list((tmp_path / "autokernel").iterdir()) == []


def test_figures_taken_on_a_busy_machine_are_used_for_ten_minutes_only(counted):
    file = cache_file(detect("cpu"))
    file.parent.mkdir(parents=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    for minutes, measured in ((9, 0), (11, 1)):
        then = (now - datetime.timedelta(minutes=minutes)).isoformat()
        file.write_text(json.dumps(peaks(steady=False, measured_at=then).to_dict()))
        measure("cpu")

        assert len(counted) == measured


def test_another_driver_or_torch_or_device_has_a_cache_file_of_its_own():
    changes = ({}, {"driver": "580.82"}, {"torch_version": "2.13.0"}, {"units": 66}, {"name": "NVIDIA H200"})
    files = {cache_file(dataclasses.replace(H100, **change)) for change in changes}

    assert len(files) == len(changes)


def test_a_relative_cache_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert cache_file(H100).parent == tmp_path / ".cache" / "autokernel"


def test_a_machine_without_a_home_folder_has_no_cache(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)

    assert cache_file(H100) is None


def test_measuring_leaves_the_float32_precision_as_it_was():
    before = torch.get_float32_matmul_precision()

    with benchmarks._float32_precision("tf32"):
        pass

    assert torch.get_float32_matmul_precision() == before


# Roofline


def test_the_floor_is_the_larger_of_bandwidth_and_rate():
    line = Roofline(H100, peaks())

    assert line.floor_us(0, 1.25e9, "float16") == pytest.approx(1000)  # 1.25 GB at 1250 GB/s
    assert line.floor_us(4e11, 1.0, "float16") == pytest.approx(2000)  # 0.4 TFLOP at 200 TFLOP/s
    assert line.floor_us(4e11, 5e9, "float16") == pytest.approx(4000)


def test_a_float32_floor_counts_the_tf32_units_unless_told_not_to():
    line = Roofline(H100, peaks())

    assert line.floor_us(1e12, 0, "float32") == pytest.approx(1e4)
    assert line.floor_us(1e12, 0, "float32", tf32=False) == pytest.approx(1e5)


def test_a_dtype_without_a_rate_is_bounded_by_bandwidth_alone():
    line = Roofline(H100, peaks())

    assert line.rate_tflop_per_s("bfloat16") is None
    assert line.ridge_flop_per_byte("bfloat16") is None
    assert line.floor_us(1e15, 1250, "bfloat16") == pytest.approx(1e-3)
    assert line.bound(1e15, 1250, "bfloat16") == "memory"


def test_the_ridge_point_separates_memory_bound_from_compute_bound():
    line = Roofline(H100, peaks())

    assert line.ridge_flop_per_byte("float16") == pytest.approx(160)
    assert line.bound(159, 1, "float16") == "memory"
    assert line.bound(161, 1, "float16") == "compute"


def test_the_peak_floor_is_below_the_measured_floor_where_the_data_sheet_is_faster():
    line = Roofline(H100, peaks(), datasheet(H100))

    assert line.peak_floor_us(0, 3.35e9, "float16") == pytest.approx(1000)
    assert line.peak_floor_us(989.4e9, 0, "float16") == pytest.approx(1000)
    assert Roofline(H100, peaks()).peak_floor_us(0, 1.25e9, "float16") == pytest.approx(1000)


def test_data_that_fits_in_the_cache_is_said_to():
    line = Roofline(H100, peaks())

    assert line.in_cache(50 * 2**20)
    assert not line.in_cache(50 * 2**20 + 1)


def test_the_infinity_cache_of_an_mi300x_counts_as_cache():
    device = Device(kind="rocm", name="AMD Instinct MI300X", arch="gfx942", units=304, cache_bytes=4 * 2**20)

    assert Roofline(device, peaks(), datasheet(device)).cache_bytes == 256 * 2**20


def test_the_roofline_of_a_device_is_json_ready(counted):
    data = json.loads(json.dumps(roofline("cpu").to_dict()))

    assert data["measured"]["copy_gb_per_s"] == 10.0
    assert data["datasheet"] is None


@pytest.mark.gpu
def test_a_gpu_reaches_more_than_half_and_no_more_than_all_of_its_data_sheet():
    line = roofline("cuda")

    if line.sheet is None:
        pytest.skip(f"no data sheet for {line.device.name}")
    assert 0.5 < line.bandwidth_gb_per_s / line.sheet.bandwidth_gb_per_s <= 1.0
    assert 0.5 < line.measured.tflop_per_s["float16"] / line.sheet.tflop_per_s["float16"] <= 1.0


@pytest.mark.gpu
def test_measuring_a_gpu_takes_less_than_three_seconds():
    torch.zeros(1, device="cuda")

    assert measure("cuda", refresh=True).seconds < 3
