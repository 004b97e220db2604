"""Single instructions on the emulator against an H200's results (tests/tensor_cases.py recorded them)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensor_cases
from engine_tools import add

from labkit import emulator
from labkit.emulator import Emulation, Launch
from labkit.emulator.counters import Counters


def recorded(group: str) -> dict[str, str]:
    return json.loads((Path(__file__).parent / f"{group}_h200.json").read_text())["results"]


def emulate(case: tensor_cases.Case, emulation: Emulation | None = None) -> np.ndarray:
    """The bytes that a case writes on the emulator."""
    emulation = emulation or Emulation()
    out = np.full(case.out, 0xEE, np.uint8)
    params = [add(emulation, data, f"in{n}") for n, data in enumerate((out, *(d.copy() for d in case.inputs)))]
    emulation.run(Launch(case.ptx, "k", (1, 1, 1), (case.threads, 1, 1), tuple(params)))
    return out


ARITHMETIC = tensor_cases.cases()["arithmetic"]
RECORDED = recorded("arithmetic")
# Units in the last place between what is computed exactly and the hardware's approximation. NVIDIA's manual
# documents more for each of them; tanh.approx.f32 has only 11 bits.
APPROXIMATE = {"f16": 1, "bf16": 1, "f32": 2, "tanh.approx.f32": 1 << 13, "rcp.approx.ftz.f64": 1 << 32,
               "rsqrt.approx.ftz.f64": 1 << 32, "rsqrt.approx.f64": 2}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in ARITHMETIC if ".approx" not in n])
def test_arithmetic_equals_the_hardware_bit_for_bit(name):
    case = ARITHMETIC[name]
    got, want = emulate(case), tensor_cases.unpack(RECORDED[name])
    assert np.array_equal(got, want), name


@pytest.mark.parametrize("name", [n for n in ARITHMETIC if ".approx" in n])
def test_approximations_are_as_near_as_documented(name):
    kind = name.split(".")[-1].removesuffix("x2")
    dtype = {"f32": "u4", "f64": "u8"}.get(kind, "u2")
    got, want = emulate(ARITHMETIC[name]).view(dtype), tensor_cases.unpack(RECORDED[name]).view(dtype)
    bound = APPROXIMATE.get(name) or APPROXIMATE[kind]
    # Numbers of one sign are sorted by their bits, and approximations get the sign right.
    apart = np.where(got > want, got - want, want - got)
    assert int(apart.max()) <= bound, (name, int(apart.max()))


TENSOR = tensor_cases.cases()["tensor"]
PRODUCTS = recorded("tensor")


@pytest.mark.parametrize("name", TENSOR)
def test_tensor_cores_equal_the_hardware_bit_for_bit(name):
    assert np.array_equal(emulate(TENSOR[name]), tensor_cases.unpack(PRODUCTS[name]))


def test_wmma_moves_matrices_as_the_recorded_layouts_say():
    made = tensor_cases.cases()["wmma"]
    assert tensor_cases.layouts({name: tensor_cases.pack(emulate(case)) for name, case in made.items()}) == LAYOUTS


LAYOUTS = json.loads((Path(emulator.__file__).parent / "wmma_layouts.json").read_text())["layouts"]
READINGS = json.loads((Path(__file__).parent / "tensor_counters_h200.json").read_text())["readings"]


@pytest.mark.parametrize("name", READINGS)
def test_counters_of_tensor_instructions_equal_ncu(name):
    case = next(made[name] for made in tensor_cases.cases().values() if name in made)
    counters = Counters(sass="matrix" in name)  # elsewhere ptxas changes nothing
    emulate(case, Emulation(counters=counters))
    counted = {metric: n for metric in tensor_cases.METRICS if (n := counters.metrics[metric])}
    assert counted == READINGS[name]
