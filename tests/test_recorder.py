"""Launches as data: which tensors become which buffers, recordings, and what host code may not do meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import labkit  # noqa: F401  # installs the hook
from labkit.emulator.engine import Emulation
from labkit.emulator.faults import KernelFault
from labkit.emulator.launch import Launch, Pointer
from labkit.kernels import KernelError, Recording, cuda_kernel, emulating, gpu, recording
from labkit.kernels.replay import main, replay

ADD = """extern "C" __global__ void add(float *c, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}"""


def add(c, a, b, n=None, grid=1, block=64):
    cuda_kernel(ADD, "add")[grid, block](c, a, b, c.numel() if n is None else n)


def recorded(*args, names=None, **kwargs):
    with recording(names) as record:
        add(*args, **kwargs)
    return record


def pointers(record, launch=0):
    return [p for p in record.launches[launch].params if isinstance(p, Pointer)]


def test_a_launch_is_recorded_and_not_run():
    c, a, b = torch.zeros(5), torch.ones(5), torch.ones(5)
    record = recorded(c, a, b, names={"C": c, "A": a})
    (launch,) = record.launches
    assert isinstance(launch, Launch)
    assert (launch.entry, launch.grid, launch.block, launch.shared) == ("add", (1, 1, 1), (64, 1, 1), 0)
    assert launch.params[3] == (5).to_bytes(4, "little")
    named = {record.buffers[p.buffer].name for p in pointers(record)}
    assert named == {"C", "A", "b"}  # b by the kernel's own parameter name
    for buffer in record.buffers:
        assert (buffer.dtype, buffer.shape, buffer.strides, buffer.nbytes, buffer.misalign) == (
            "float32", (5,), (1,), 20, 0,
        )  # fmt: skip
    assert c.tolist() == [0] * 5


def test_the_same_memory_is_one_buffer():
    x = torch.arange(10.0)
    one = pointers(recorded(x, x, x))
    assert [p.offset for p in one] == [0, 0, 0] and len({p.buffer for p in one}) == 1
    views = recorded(x[2:8], x[4:10], x[2:5], n=3)  # overlap: one buffer over all that they cover
    assert [p.offset for p in pointers(views)] == [0, 8, 0]
    assert [(b.nbytes, b.misalign) for b in views.buffers] == [(32, 8)]
    apart = recorded(x[0:3], x[3:6], x[6:9], n=3)  # neighbors: a stray index is out of bounds
    assert [b.nbytes for b in apart.buffers] == [12, 12, 12]
    assert sorted(b.misalign for b in apart.buffers) == [0, 12, 24]


def test_a_buffer_keeps_its_place_over_launches():
    x, y = torch.zeros(8), torch.zeros(8)
    with recording() as record:
        add(x, y, y)
        add(y, x, x[2:6], n=4)
    assert len(record.buffers) == 2
    assert pointers(record, 1)[0] == pointers(record, 0)[1]
    assert pointers(record, 1)[2] == Pointer(pointers(record, 0)[0].buffer, 8)


def test_numba_parameters():
    from numba import cuda

    @cuda.jit(max_registers=32)
    def k(m, f, flag):
        m[0, 0] = f if flag else 0

    m = torch.zeros(6, 8)[1:5, 2:8:2]
    with recording() as record:
        k[(3, 2), (4, 5)](m, 2.5, True)
    (launch,) = record.launches
    values = [p if isinstance(p, Pointer) else int.from_bytes(p, "little") for p in launch.params[:9]]
    assert values == [0, 0, 12, 4, Pointer(0, 0), 4, 3, 32, 8]
    assert launch.params[9:] == (np.float64(2.5).tobytes(), b"\x01")
    assert (launch.entry, launch.grid, launch.block) == ("k", (3, 2, 1), (4, 5, 1))
    assert launch.max_registers == 32
    (buffer,) = record.buffers
    assert (buffer.name, buffer.shape, buffer.strides, buffer.misalign) == ("m", (4, 3), (8, 2), 40)
    assert buffer.nbytes == (3 * 8 + 2 * 2 + 1) * 4


def test_records_by_value():
    from numba import cuda

    @cuda.jit
    def k(out, r):
        out[0] = r.a + r.b

    r = np.array([(3, 0.5)], np.dtype([("a", np.int32), ("b", np.float64)], align=True))
    out = np.zeros(1)
    with emulating(Emulation()):
        k[1, 1](out, r[0])
    assert out[0] == 3.5


def test_equal_sources_give_equal_ptx(tmp_path):
    from labkit.kernels import load

    path = tmp_path / "k.py"
    path.write_text(
        "from numba import cuda\n@cuda.jit\ndef k(x):\n    x[cuda.grid(1)] = 1\ndef launch(x):\n    k[1, 8](x)\n"
    )
    with recording() as record:
        load(path).launch(torch.zeros(8))
        load(path).launch(torch.zeros(8))
    assert record.launches[0].ptx == record.launches[1].ptx


def test_misalignment_shows():
    source = """extern "C" __global__ void four(float4 *y) { y[threadIdx.x] = make_float4(1, 2, 3, 4); }"""
    kernel, x = cuda_kernel(source, "four"), torch.zeros(40)
    with emulating(Emulation()):
        kernel[1, 8](x[4:])
        assert x.tolist() == [0] * 4 + [1, 2, 3, 4] * 8 + [0] * 4
        with pytest.raises(KernelFault) as caught:
            kernel[1, 8](x[1:])
    assert caught.value.kind == "misaligned"


def test_a_guard_zone_is_out_of_bounds():
    guarded = torch.zeros(30)
    with emulating(Emulation(), names={"C": guarded[10:20]}), pytest.raises(KernelFault) as caught:
        add(guarded[10:20], torch.ones(11), torch.ones(11), n=11)
    assert (caught.value.array, caught.value.kind) == ("C", "out_of_bounds")
    assert guarded[20] == 0


def test_the_same_emulation_again_is_the_same_memory():
    emulation, x = Emulation(), torch.ones(4)
    for _ in range(3):
        with emulating(emulation):
            add(x, x, x)
    assert x.tolist() == [8] * 4
    assert len([b for b in emulation.memory.buffers if not b.symbol]) == 1


def test_sessions_nest_and_end():
    x = torch.ones(4)
    with recording() as outer:
        with emulating(Emulation()):
            add(x, x, x)
        with recording() as inner:
            add(x, x, x)
        with pytest.raises(ZeroDivisionError), emulating(Emulation()):
            _ = 1 / 0
        add(x, x, x)
    assert (x.tolist(), len(outer.launches), len(inner.launches)) == ([2] * 4, 1, 1)


LOOKS = {
    "item": lambda t: t[0].item(),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "np.asarray": lambda t: np.asarray(t),
    "float": lambda t: float(t[0]),
    "if": lambda t: bool(t[0] > 0),
    "sum": lambda t: t.sum(),
    "torch.add": lambda t: torch.add(t, 1),
    "print": lambda t: repr(t),
    "zero_": lambda t: t.zero_(),
    "setitem": lambda t: t.__setitem__(0, 1.0),
    "clone": lambda t: t[1:].clone(),
    "copy_": lambda t: torch.zeros(8).copy_(t),
    "out=": lambda t: torch.add(torch.ones(8), 1, out=t),
    "cat": lambda t: torch.cat([t, t]),
    "transposed copy": lambda t: t.view(2, 4).t().contiguous(),
    "storage": lambda t: t.untyped_storage(),
    "dlpack": lambda t: np.from_dlpack(t),
    "iterate": lambda t: [float(v) for v in t],
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_values_between_launches_is_refused(look):
    x, other = torch.ones(8), torch.ones(8)
    LOOKS[look](x.clone())
    with recording():
        LOOKS[look](other.clone())  # a tensor that no launch used
        before = x.sum() + 1  # nor is this, yet
        add(x, x, x)
        with pytest.raises(KernelError, match="launches are being recorded here, not run") as caught:
            LOOKS[look](x)
    assert "\n" not in str(caught.value)
    assert before == 9
    LOOKS[look](x)


def test_shapes_and_views_between_launches_are_fine():
    x = torch.ones(4, 6)
    with recording() as record:
        add(x, x, x, n=24)
        rows, columns = x.shape
        assert (x.size(0), x.stride(), x.dtype, x.numel(), len(x), x.device.type) == (4, (6, 1), x.dtype, 24, 4, "cpu")
        assert x.is_contiguous() and x.data_ptr()
        flat = x.view(-1).reshape(24).contiguous().detach()
        for view in (flat[2:5], x[1], x.t().t()[2], x.unsqueeze(0).squeeze(), x.flatten()):
            add(view, view, view, n=view.numel())
        work = x.new_empty(rows * columns)
        add(work, torch.empty_like(x), x, n=24)
    assert len(record.launches) == 7
    assert len(record.buffers) == 3


@pytest.mark.skipif(gpu.available(), reason="numba.cuda is left as it is on a GPU")
def test_device_arrays_while_recording():
    from numba import cuda

    @cuda.jit
    def twice(x):
        x[cuda.threadIdx.x] *= 2

    with recording() as record:
        x = cuda.to_device(np.ones(32, np.float32))
        assert x.copy_to_host().sum() == 32
        twice[1, 32](x)
        for look in (x.copy_to_host, lambda: x[3], lambda: x.copy_to_device(np.zeros(32, np.float32))):
            with pytest.raises(KernelError, match="A copy reaches the values of a tensor"):
                look()
    assert x.copy_to_host().sum() == 32
    assert record.buffers[0].data.view(np.float32).sum() == 32


def three_launches():
    a, b, c = torch.randn(33), torch.randn(33), torch.full((33,), float("nan"))
    work = torch.empty(33).fill_(7)

    def run():
        add(work, a, b)
        add(c, work, a[1:], n=32)
        add(c[32:], work[32:], b[:1], n=1)

    return run, (a, b, c, work)


def test_a_recording_runs_as_the_launches_would(tmp_path):
    run, tensors = three_launches()
    with recording({"C": tensors[2]}) as record:
        run()
    record.save(tmp_path / "deep" / "folder")
    loaded = Recording.load(tmp_path / "deep" / "folder")
    assert loaded.launches == record.launches and loaded.clusters == record.clusters
    for was, now in zip(record.buffers, loaded.buffers, strict=True):
        assert (was.name, was.dtype, was.shape, was.strides, was.misalign) == (
            now.name, now.dtype, now.shape, now.strides, now.misalign,
        )  # fmt: skip
        assert np.array_equal(was.data, now.data)
    after = {b.name: data for b, data in zip(loaded.buffers, loaded.run(Emulation()), strict=True)}
    with emulating(Emulation()):
        run()
    assert after["C"].tobytes() == tensors[2].numpy().tobytes()
    assert not torch.isnan(tensors[2]).any()


def change(key, value):
    def edit(folder):
        described = json.loads((folder / "recording.json").read_text())
        *path, last = key.split("/")
        inside = described
        for step in path:
            inside = inside[int(step) if step.isdigit() else step]
        inside[int(last) if last.isdigit() else last] = value
        (folder / "recording.json").write_text(json.dumps(described))

    return edit


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "recording.json").unlink(),
        lambda folder: (folder / "buffer1.bin").unlink(),
        lambda folder: (folder / "buffer0.bin").write_bytes(b"short"),
        lambda folder: (folder / "recording.json").write_text("[" * 100_000),
        lambda folder: (folder / "recording.json").write_text("[]"),
        change("version", 2),
        change("launches/0/ptx", 7),
        change("launches/0/grid", [1, 1]),
        change("launches/0/grid", [1, 1, "x"]),
        change("launches/0/grid", [0, 1, 1]),
        change("launches/0/block", [4096, 1, 1]),
        change("launches/0/shared", -1),
        change("launches/0/params/0", {"buffer": 9, "offset": 0}),
        change("launches/0/params/0", {"buffer": -1, "offset": 0}),
        change("launches/0/params/0", {"buffer": True, "offset": 0}),
        change("launches/0/params/0", None),
        change("buffers/0/misalign", 999),
        change("buffers/0/nbytes", 3),
    ],
)
def test_spoiled_recordings(tmp_path, spoil):
    x = torch.ones(8)
    recorded(x, x.clone(), x).save(tmp_path)
    Recording.load(tmp_path)
    spoil(tmp_path)
    with pytest.raises(KernelError):
        Recording.load(tmp_path)


@pytest.mark.skipif(gpu.available(), reason="there is a GPU")
def test_replay_without_a_gpu(tmp_path):
    x = torch.ones(8)
    recorded(x, x, x).save(tmp_path)
    command = [sys.executable, "-m", "labkit.kernels.replay", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "There is no GPU here to replay a recording on; run it on the emulator instead.\n"


def test_replay_of_nothing(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no recording of labkit's" in capsys.readouterr().err


@pytest.mark.gpu
def test_replay_on_the_gpu(tmp_path, capsys):
    run, tensors = three_launches()
    with recording({"C": tensors[2]}) as record:
        run()
    record.save(tmp_path)
    for emulated, measured in zip(record.run(Emulation()), replay(record), strict=True):
        assert np.array_equal(emulated, measured)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "ok\n"


@pytest.mark.gpu
def test_recording_tensors_on_the_gpu():
    from numba import cuda

    @cuda.jit
    def twice(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    x = torch.arange(10.0, device="cuda")
    with recording() as record:
        twice[1, 32](x[2:])
        add(x[2:], x[2:], x[2:])
    assert x.tolist() == list(range(10))
    assert record.buffers[0].data.view(np.float32).tolist() == list(range(2, 10))
    assert replay(record)[0].view(np.float32).tolist() == [4.0 * i for i in range(2, 10)]
    with emulating(Emulation()), pytest.raises(KernelError, match="takes tensors on the CPU"):
        twice[1, 32](x)
    host = np.arange(10.0)
    with emulating(Emulation()):
        twice[1, 32](host)
    assert host.tolist() == [2.0 * i for i in range(10)]
    twice[1, 32](x)  # and outside, the GPU
    assert x.tolist() == [2 * i for i in range(10)]
