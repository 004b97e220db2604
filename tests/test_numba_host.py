"""Plain numba.cuda programs on the emulator: what tutorials use, each run and compared with numpy."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import labkit  # noqa: F401  # installs the hook
from labkit.emulator.faults import KernelFault
from labkit.errors import LabkitError
from labkit.kernels import KernelError, gpu

if gpu.available():
    pytest.skip("this machine has a GPU, and numba.cuda is left as it is", allow_module_level=True)

from numba import cuda, float32, float64, int32, void  # noqa: E402


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


def test_host_array_is_written_in_place():
    x = np.arange(100, dtype=np.float32)
    double[1, 128](x)
    np.testing.assert_array_equal(x, np.arange(100) * 2)


def test_stream_and_shared_in_the_configuration():
    @cuda.jit
    def reverse(x):
        tile = cuda.shared.array(0, float32)
        i = cuda.threadIdx.x
        tile[i] = x[i]
        cuda.syncthreads()
        x[i] = tile[cuda.blockDim.x - 1 - i]

    x = np.arange(64, dtype=np.float32)
    stream = cuda.stream()
    reverse[1, 64, stream, 64 * 4](x)
    stream.synchronize()
    np.testing.assert_array_equal(x, np.arange(64)[::-1])


def test_two_and_three_dimensions():
    @cuda.jit
    def index(out):
        x, y, z = cuda.grid(3)
        if x < out.shape[0] and y < out.shape[1] and z < out.shape[2]:
            out[x, y, z] = x * 100 + y * 10 + z

    out = np.zeros((5, 4, 3), np.int64)
    index[(2, 2, 3), (3, 2, 1)](out)
    x, y, z = np.indices(out.shape)
    np.testing.assert_array_equal(out, x * 100 + y * 10 + z)


def test_to_device_and_back():
    host = np.arange(12, dtype=np.float64).reshape(3, 4)
    device = cuda.to_device(host)
    host[:] = -1  # a copy was taken
    np.testing.assert_array_equal(device.copy_to_host(), np.arange(12).reshape(3, 4))
    assert (device.shape, device.dtype, device.ndim, device.size, device.nbytes) == ((3, 4), np.float64, 2, 12, 96)
    double[1, 32](device.reshape(12))
    into = np.empty((3, 4))
    assert device.copy_to_host(into) is into
    np.testing.assert_array_equal(into, np.arange(12).reshape(3, 4) * 2)
    device.copy_to_device(np.ones((3, 4)))
    np.testing.assert_array_equal(np.asarray(device), np.ones((3, 4)))
    with pytest.raises(ValueError):
        device.copy_to_device(np.ones(5))


def test_allocations():
    stream = cuda.stream()
    like = cuda.device_array_like(np.empty((3, 5), np.int32))
    assert (like.shape, like.dtype) == ((3, 5), np.int32)
    fortran = cuda.device_array((3, 5), np.float32, order="F", stream=stream)
    assert fortran.is_f_contiguous()
    assert cuda.device_array(0).copy_to_host().shape == (0,)
    for made in (cuda.pinned_array(6, np.float32), cuda.mapped_array(6, np.float32), cuda.managed_array(6, np.float32)):
        made[:] = np.arange(6)
        double[1, 32](made)
        np.testing.assert_array_equal(made, np.arange(6) * 2)
    with cuda.pinned(np.zeros(4)):
        pass


def test_slices_and_items_of_device_arrays():
    device = cuda.to_device(np.arange(20, dtype=np.float32).reshape(4, 5))
    np.testing.assert_array_equal(device[1].copy_to_host(), np.arange(5, 10))
    np.testing.assert_array_equal(device[1:3, 2].copy_to_host(), [7, 12])
    assert device[2, 3] == 13
    double[1, 32](device[3])
    device[0] = 7
    device[1, 1:3] = np.float32([-1, -2])
    device[2, 0] = 99
    expected = np.arange(20, dtype=np.float32).reshape(4, 5)
    expected[3] *= 2
    expected[0] = 7
    expected[1, 1:3] = -1, -2
    expected[2, 0] = 99
    np.testing.assert_array_equal(device.copy_to_host(), expected)
    np.testing.assert_array_equal(device.T.copy_to_host(), expected.T)
    np.testing.assert_array_equal(device.ravel().copy_to_host(), expected.ravel())


def test_streams_and_events():
    stream = cuda.stream()
    with stream.auto_synchronize():
        device = cuda.to_device(np.arange(8, dtype=np.float32), stream=stream)
        double[1, 32, stream](device)
        got = device.copy_to_host(stream=stream)
    np.testing.assert_array_equal(got, np.arange(8) * 2)
    start, end = cuda.event(), cuda.event(timing=True)
    start.record(stream)
    end.record()
    end.synchronize()
    end.wait(stream)
    assert end.query()
    seen = []
    stream.add_callback(lambda s, status, arg: seen.append((status, arg)), "done")
    assert seen == [(0, "done")]
    for elapsed in (lambda: cuda.event_elapsed_time(start, end), lambda: start.elapsed_time(end)):
        with pytest.raises(LabkitError, match="emulator has no clock"):
            elapsed()
    cuda.synchronize()
    cuda.default_stream().synchronize()


def test_forall():
    x = np.arange(1000, dtype=np.float32)
    double.forall(x.size)(x)
    double.forall(x.size, tpb=64, stream=cuda.stream())(x)
    double.forall(0)(x)
    np.testing.assert_array_equal(x, np.arange(1000) * 4)


@pytest.mark.parametrize("signature", ["void(float32[:], float32)", void(float32[:], float32), (float32[:], float32)])
def test_eager_signature(signature):
    @cuda.jit(signature)
    def scale(x, a):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= a

    x = np.arange(10, dtype=np.float32)
    scale[1, 32](x, 3)  # an int, cast to the float32 of the signature
    np.testing.assert_array_equal(x, np.arange(10) * 3)
    with pytest.raises(KernelError, match=r"scale is compiled for \(array\(float32, 1d, A\), float32\)"):
        scale[1, 32](np.zeros(10), 3)


def test_list_of_signatures():
    @cuda.jit(["void(float32[:])", "void(float64[:])", "void(int32[:])"])
    def add_one(x):
        x[cuda.grid(1)] += 1

    for dtype in (np.float32, np.float64, np.int32):
        x = np.zeros(32, dtype)
        add_one[1, 32](x)
        np.testing.assert_array_equal(x, np.ones(32))
    with pytest.raises(KernelError, match="is compiled for"):
        add_one[1, 32](np.zeros(32, np.int8))


def test_eager_signature_that_does_not_compile():
    with pytest.raises(KernelError, match="wrong does not compile: numba has no sin"):

        @cuda.jit("void(float32[:])")
        def wrong(x):
            x[0] = math.sin("x")


def test_device_functions():
    @cuda.jit(device=True)
    def polynomial(v):
        return 2 * v * v + 1

    @cuda.jit("float32(float32)", device=True)
    def half(v):
        return v / 2

    @cuda.jit
    def apply(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = half(polynomial(x[i]))

    x = np.arange(40, dtype=np.float32)
    apply[2, 32](x)
    np.testing.assert_array_equal(x, (2 * np.arange(40) ** 2 + 1) / 2)


def test_constant_local_and_global_arrays():
    table = np.array([1, 10, 100, 1000], np.int32)

    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        constant = cuda.const.array_like(table)
        mine = cuda.local.array(4, int32)
        for k in range(4):
            mine[k] = constant[k] * (i + 1)
        total = 0
        for k in range(4):
            total += mine[(k + i) % 4] * (k + 1)
        x[i] = total

    x = np.zeros(32, np.int64)
    kernel[1, 32](x)
    i = np.arange(32)
    expected = sum(table[(k + i) % 4].astype(np.int64) * (i + 1) * (k + 1) for k in range(4))
    np.testing.assert_array_equal(x, expected)


def test_shared_memory_sum():
    @cuda.jit
    def block_sum(x, out):
        tile = cuda.shared.array(128, float64)
        t = cuda.threadIdx.x
        i = cuda.grid(1)
        tile[t] = x[i] if i < x.size else 0.0
        cuda.syncthreads()
        step = 64
        while step > 0:
            if t < step:
                tile[t] += tile[t + step]
            cuda.syncthreads()
            step //= 2
        if t == 0:
            cuda.atomic.add(out, 0, tile[0])

    x = np.arange(1000, dtype=np.float64)
    out = np.zeros(1)
    block_sum[8, 128](x, out)
    assert out[0] == x.sum()


def test_atomics():
    @cuda.jit
    def histogram(values, bins, highest, lowest, old):
        i = cuda.grid(1)
        if i < values.size:
            cuda.atomic.add(bins, values[i], 1)
            cuda.atomic.max(highest, 0, values[i])
            cuda.atomic.min(lowest, 0, values[i])
            cuda.atomic.compare_and_swap(old, -1, 5)

    values = np.random.default_rng(0).integers(0, 10, 300).astype(np.int32)
    bins, highest, lowest, old = np.zeros(10, np.int32), np.int32([-1]), np.int32([99]), np.int32([-1])
    histogram[3, 128](values, bins, highest, lowest, old)
    np.testing.assert_array_equal(bins, np.bincount(values, minlength=10))
    assert (highest[0], lowest[0], old[0]) == (values.max(), values.min(), 5)


def test_shuffles_and_votes():
    @cuda.jit
    def warps(x, total, above, ballot):
        i = cuda.grid(1)
        v = x[i]
        for offset in (16, 8, 4, 2, 1):
            v += cuda.shfl_xor_sync(-1, v, offset)
        total[i] = v
        above[i] = cuda.shfl_up_sync(-1, x[i], 1)
        ballot[i] = cuda.ballot_sync(-1, x[i] % 3 == 0)

    x = np.random.default_rng(1).integers(0, 100, 64).astype(np.int32)
    total, above, ballot = (np.zeros(64, np.int64) for _ in range(3))
    warps[2, 32](x, total, above, ballot)
    by_warp = x.reshape(2, 32)
    np.testing.assert_array_equal(total, np.repeat(by_warp.sum(1), 32))
    np.testing.assert_array_equal(above, np.concatenate([by_warp[:, :1], by_warp[:, :-1]], 1).ravel())
    bits = (by_warp % 3 == 0) @ (1 << np.arange(32, dtype=np.int64))
    np.testing.assert_array_equal(ballot & 0xFFFFFFFF, np.repeat(bits, 32))


def test_argument_kinds():
    @cuda.jit
    def kernel(out, flag, f, c, pair, nested):
        if flag:
            out[0] = f
            out[1] = c.real
            out[2] = c.imag
            out[3] = pair[0] + pair[1]
            out[4] = nested[0][1] + nested[1]

    out = np.zeros(5)
    kernel[1, 1](out, True, np.float32(1.5), 2 - 3j, (4, 5.5), ((1, 2), 3))
    np.testing.assert_array_equal(out, [1.5, 2, -3, 9.5, 5])


def test_half_precision_and_records():
    @cuda.jit
    def halves(x):
        i = cuda.grid(1)
        x[i] = x[i] + x[i]

    x = np.arange(32, dtype=np.float16)
    halves[1, 32](x)
    np.testing.assert_array_equal(x, np.arange(32) * 2)

    @cuda.jit
    def fields(r):
        i = cuda.grid(1)
        r[i].b = r[i].a * 2

    records = np.zeros(32, np.dtype([("a", np.int32), ("b", np.float64)], align=True))
    records["a"] = np.arange(32)
    fields[1, 32](records)
    np.testing.assert_array_equal(records["b"], np.arange(32) * 2)


def test_in_out_hints():
    a, b = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32)
    double[1, 32](cuda.In(a))  # a GPU would leave the host's array as it is
    double[1, 32](cuda.InOut(b))
    np.testing.assert_array_equal(a, np.arange(8))
    np.testing.assert_array_equal(b, np.arange(8) * 2)


def test_torch_tensors():
    import torch

    x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    double[1, 32](x.view(-1))
    assert torch.equal(x, torch.arange(24).reshape(4, 6) * 2.0)

    @cuda.jit
    def bump(m):
        i, j = cuda.grid(2)
        if i < m.shape[0] and j < m.shape[1]:
            m[i, j] += 1

    y = torch.zeros(5, 7)
    bump[(1, 1), (8, 8)](y[1:4, ::2].t())
    expected = torch.zeros(5, 7)
    expected[1:4, ::2] = 1
    assert torch.equal(y, expected)


def test_reduce_and_vectorize():
    total = cuda.reduce(lambda a, b: a + b)
    assert total(np.arange(500, dtype=np.float64)) == 124750
    from numba.cuda import vectorize

    @vectorize(["float32(float32, float32)"], target="cuda")
    def add(a, b):
        return a + b

    x = np.arange(33, dtype=np.float32)
    np.testing.assert_array_equal(add(x, x), x * 2)


def test_the_device():
    assert cuda.is_available()
    assert cuda.detect()
    assert len(cuda.gpus) == 1 and len(cuda.list_devices()) == 1
    device = cuda.get_current_device()
    assert "emulator" in str(device.name)
    assert device.compute_capability == (9, 0)
    assert (device.WARP_SIZE, device.MAX_THREADS_PER_BLOCK) == (32, 1024)
    assert device.MULTIPROCESSOR_COUNT == 132
    with pytest.raises(LabkitError, match="no CLOCK_RATE"):
        _ = device.CLOCK_RATE
    assert cuda.select_device(0).id == 0
    with cuda.gpus[0]:
        pass
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total
    cuda.close()
    assert cuda.to_device(np.ones(3)).copy_to_host().sum() == 3


def test_faults():
    @cuda.jit
    def stray(x):
        x[cuda.grid(1)] = 1  # no check of the bounds

    device = cuda.to_device(np.zeros(40, np.float32))
    with pytest.raises(KernelFault) as caught:
        stray[2, 32](device)
    fault = caught.value
    assert (fault.kind, fault.kernel) == ("out_of_bounds", "stray")
    assert fault.line == stray.py_func.__code__.co_firstlineno + 2
    assert fault.array == "x"
    assert "x[40]" in str(fault)

    @cuda.jit(device=True)
    def store(x, i):
        x[i] = 1

    @cuda.jit
    def calls(x):
        store(x, cuda.grid(1))

    with pytest.raises(KernelFault) as caught:
        calls[2, 32](device)
    assert caught.value.array == "x"


@pytest.mark.parametrize(
    ("grid", "block", "shared", "says"),
    [
        (1, 2048, 0, "2048 threads; a GPU takes at most 1024"),
        (0, 32, 0, "size below 1"),
        ((1, 70000), 32, 0, "too large"),
        (1, 32, 300_000, "dynamic shared memory"),
    ],
)
def test_launches_that_a_gpu_refuses(grid, block, shared, says):
    with pytest.raises(KernelError, match=says):
        double[grid, block, 0, shared](np.zeros(4, np.float32))


def test_arguments_that_do_not_fit():
    with pytest.raises(KernelError, match=r"double takes 1 argument \(x\), not 2"):
        double[1, 32](np.zeros(4), 1)
    with pytest.raises(KernelError, match="double's x is a dict"):
        double[1, 32]({})
    with pytest.raises(KernelError, match="read-only"):
        frozen = np.zeros(4)
        frozen.flags.writeable = False
        double[1, 32](frozen)
    import torch

    with pytest.raises(KernelError, match="bfloat16 tensor, and numba has no such type"):
        double[1, 32](torch.zeros(4, dtype=torch.bfloat16))

    @cuda.jit(debug=True, opt=False)
    def debugged(x):
        x[0] = 1

    with pytest.raises(KernelError, match="remove debug=True"):
        debugged[1, 1](np.zeros(1))
    with pytest.raises(ValueError):
        double(np.zeros(4))


PROGRAM = """
    {first}
    {second}
    import numpy as np
    from numba.cuda import to_device
    assert cuda.is_available()

    @cuda.jit
    def add(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] + b[i]

    a = cuda.to_device(np.arange(100.0)); b = to_device(np.ones(100)); c = cuda.device_array_like(a)
    add[4, 32](a, b, c)
    cuda.synchronize()
    assert (c.copy_to_host() == np.arange(100) + 1).all()
    print("ok")
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("import labkit", "from numba import cuda"),
        ("from numba import cuda", "import labkit"),
        ("from numba import cuda; from numba.cuda import to_device, jit; cuda.is_available()", "import labkit"),
        ("import labkit, numba", "import numba.cuda; cuda = numba.cuda"),
    ],
)
def test_whichever_is_imported_first(first, second, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).format(first=first, second=second))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_import_of_labkit_loads_neither_numba_nor_torch():
    code = "import sys, labkit, labkit.kernels; print([m for m in ('numba', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
