"""Tensor cores in kernels written as people write them: mma.h, inline PTX, ldmatrix and cp.async."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.emulator import KernelFault

WMMA = r"""
#include <mma.h>
using namespace nvcuda;

// C[M, N] = A[M, K] B[K, N], a warp per tile; A and B row-major, staged through shared memory.
extern "C" __global__ void gemm(OUT *C, const IN *A, const IN *B, int M, int N, int K)
{
    __shared__ __align__(32) IN a_tile[TM * (TK + PAD)];
    __shared__ __align__(32) IN b_tile[TK * (TN + PAD)];
    int row = blockIdx.y * TM, column = blockIdx.x * TN, lane = threadIdx.x;
    wmma::fragment<wmma::matrix_a, TM, TN, TK, FRAGMENT, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, TM, TN, TK, FRAGMENT, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, TM, TN, TK, OUT> c;
    wmma::fill_fragment(c, (OUT)0);
    for (int k = 0; k < K; k += TK) {
        for (int i = lane; i < FILL; i += 32)
            a_tile[i / TK * (TK + PAD) + i % TK] = A[(row + i / TK) * K + k + i % TK];
        for (int i = lane; i < TK * TN; i += 32)
            b_tile[i / TN * (TN + PAD) + i % TN] = B[(k + i / TN) * N + column + i % TN];
        SYNC;
        wmma::load_matrix_sync(a, a_tile, TK + PAD);
        wmma::load_matrix_sync(b, b_tile + SHIFT, TN + PAD);
        wmma::mma_sync(c, a, b, c);
        __syncwarp();
    }
    for (int i = 0; i < c.num_elements; ++i)
        c.x[i] = c.x[i] + c.x[i];  // elementwise work does not care who holds what
    wmma::store_matrix_sync(C + row * N + column, c, N, wmma::mem_row_major);
}
"""

# in C, in numpy (bfloat16 as bits), result, tile
TYPES = {
    "f16": ("half", "half", np.float16, "float", np.float32, (16, 16, 16)),
    "f16 wide": ("half", "half", np.float16, "half", np.float16, (8, 32, 16)),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16", np.uint16, "float", np.float32, (8, 32, 16)),
    "bf16 tall": ("__nv_bfloat16", "__nv_bfloat16", np.uint16, "float", np.float32, (32, 8, 16)),
    "tf32": ("float", "wmma::precision::tf32", np.float32, "float", np.float32, (16, 16, 8)),
    "s8": ("signed char", "signed char", np.int8, "int", np.int32, (16, 16, 16)),
    "u8": ("unsigned char", "unsigned char", np.uint8, "int", np.int32, (32, 8, 16)),
    "f64": ("double", "double", np.float64, "double", np.float64, (8, 8, 4)),
}  # fmt: skip
OPERATIONS = {"f16": "fp16", "bf16": "bf16_dst_fp32", "tf32": "tf32_dst_fp32", "f64": "fp64"}


def wmma(name: str, sync: str = "__syncwarp()", shift: int = 0, threads: int = 32, fill: str = "TM*TK") -> tuple:
    """Run the kernel on small integers; (profile, result, what it should be)."""
    element, fragment, dtype, out, result, (m, n, k) = TYPES[name]
    defines = {"IN": element, "FRAGMENT": fragment, "OUT": out, "TM": m, "TN": n, "TK": k, "SYNC": sync, "SHIFT": shift}
    defines["FILL"] = fill
    defines["PAD"] = 16 // np.dtype(dtype).itemsize
    kernel = lk.cuda_kernel(
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + WMMA,
        "gemm",
        defines=[f"{a}={b}" for a, b in defines.items()],
    )
    rng = np.random.default_rng(1)
    low = 0 if dtype == np.uint8 else -4
    M, N, K = 2 * m, 2 * n, 32
    a, b = rng.integers(low, 5, (M, K)), rng.integers(low, 5, (K, N))
    bits = (lambda x: (x.astype(np.float32).view(np.uint32) >> 16).astype(dtype)) if "bf16" in name else None
    given = [bits(x) if bits else x.astype(dtype) for x in (a, b)]
    c = np.zeros((M, N), result)
    profile = lk.emulate(kernel, (2, 2), threads, (c, *given, M, N, K))
    return profile, c, 2 * (a @ b)


@pytest.mark.parametrize("name", TYPES)
def test_wmma_gemm(name):
    profile, got, want = wmma(name)
    assert (got == want).all()
    metric = f"sm__ops_path_tensor_src_{OPERATIONS.get(name.split()[0], 'int8')}.sum"
    assert profile[metric] == 2 * want.shape[0] * want.shape[1] * 32
    assert profile.fidelity[metric] == "exact"
    assert profile.fidelity["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == "modeled"
    assert profile.fidelity["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == "exact"


@pytest.mark.parametrize(
    "options, kind",
    [({"sync": ""}, "race"), ({"shift": 16}, "out_of_bounds"), ({"shift": 4}, "misaligned"),
     ({"fill": "TM*TK/2"}, "uninitialized")],
)  # fmt: skip
def test_wmma_is_watched(options, kind):
    with pytest.raises(KernelFault) as found:
        wmma("f16", **options)
    assert found.value.kind == kind


def test_wmma_needs_whole_warps():
    with pytest.raises(KernelFault, match=r"reached by 16 of 32 threads of the warp of thread \(0, 0, 0\)"):
        wmma("f16", threads=16)


MMA = r"""
#include <cuda_fp16.h>
__device__ unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// C[64, 64] = A[64, K] B[K, 64]: 4 warps of 16 rows each, two stages of cp.async, ldmatrix, mma.sync.
extern "C" __global__ void gemm(float *C, const half *A, const half *B, int K)
{
    __shared__ __align__(16) half a_tile[2][64][16 + PAD], b_tile[2][16][64 + PAD];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    float c[8][4] = {};
    auto fetch = [&](int stage, int k) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&a_tile[stage][t / 2][t % 2 * 8])),
                     "l"(A + t / 2 * K + k + t % 2 * 8));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&b_tile[stage][t / 8][t % 8 * 8])),
                     "l"(B + (k + t / 8) * 64 + t % 8 * 8));
        asm volatile("cp.async.commit_group;");
    };
    fetch(0, 0);
    for (int k = 0, stage = 0; k < K; k += 16, stage ^= 1) {
        if (k + 16 < K)
            fetch(stage ^ 1, k + 16);
        else
            asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        unsigned a[4], b[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(at(&a_tile[stage][warp * 16 + lane % 16][lane / 16 * 8])));
        for (int j = 0; j < 8; j += 2) {
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                         : "r"(at(&b_tile[stage][lane % 16][j * 8 + lane / 16 * 8])));
            for (int i = 0; i < 2; ++i)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
                             " {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(c[j + i][0]), "+f"(c[j + i][1]), "+f"(c[j + i][2]), "+f"(c[j + i][3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * i]), "r"(b[2 * i + 1]));
        }
        LAST;
    }
    for (int j = 0; j < 8; ++j)
        for (int i = 0; i < 4; ++i)
            C[(warp * 16 + lane / 4 + i / 2 * 8) * 64 + j * 8 + lane % 4 * 2 + i % 2] = c[j][i];
}
"""


def mma(pad: int, last: str = "__syncthreads()") -> tuple:
    kernel = lk.cuda_kernel(MMA, "gemm", defines=(f"PAD={pad}", f"LAST={last}"))
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((64, 64)).astype(np.float16), rng.standard_normal((64, 64)).astype(np.float16)
    c = np.zeros((64, 64), np.float32)
    return lk.emulate(kernel, 1, 128, (c, a, b, 64)), c, a, b


@pytest.mark.parametrize("pad", [0, 8])
def test_mma_gemm_with_ldmatrix_and_asynchronous_copies(pad):
    profile, got, a, b = mma(pad)
    want = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(got - want) <= 64 * 2.0**-24 * size).all()
    assert profile["sm__ops_path_tensor_src_fp16.sum"] == 2 * 64**3
    waves = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
    loads = 4 * 4 * 5  # 4 turns, 4 warps, one of A and four of B
    assert profile[waves] - profile[conflicts] == 4 * loads
    # Without padding rows of A are 32 bytes and those of B 128 bytes apart: two and eight to a bank.
    assert profile[conflicts] == (0 if pad else 4 * 4 * (4 + 4 * 28))
    assert profile.fidelity[waves] == "exact"


def test_a_missing_barrier_after_the_last_ldmatrix_is_a_race():
    with pytest.raises(KernelFault) as found:
        mma(8, last="")
    assert found.value.kind == "race"


@pytest.mark.parametrize("offset, kind", [(8, "misaligned"), (4096, "out_of_bounds"), (1024, "uninitialized")])
def test_ldmatrix_is_watched(offset, kind):
    source = r"""
extern "C" __global__ void k(unsigned *out)
{
    __shared__ __align__(16) unsigned tile[512];
    int t = threadIdx.x;
    for (int i = 0; i < 8; ++i)
        tile[i * 32 + t] = t;
    __syncwarp();
    unsigned r, p = (unsigned)__cvta_generic_to_shared(tile) + 16 * t + OFFSET;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(p));
    out[t] = r;
}
"""
    kernel = lk.cuda_kernel(source, "k", defines=(f"OFFSET={offset}",))
    with pytest.raises(KernelFault) as found:
        lk.emulate(kernel, 1, 32, (np.zeros(32, np.uint32),))
    assert found.value.kind == kind


@pytest.mark.parametrize(
    "code, what",
    [
        ('asm volatile("wgmma.fence.sync.aligned;");', "wgmma"),
        ('asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(p));', "mbarrier"),
        ('asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%0];"'
         ' ::"r"(p), "l"(out));', "TMA"),
        ('asm volatile("barrier.cluster.arrive.aligned;");', "clusters"),
        ('asm volatile("mapa.shared::cluster.u32 %0, %0, 0;" : "+r"(p));', "clusters"),
    ],
)  # fmt: skip
def test_what_only_hopper_has_is_named(code, what):
    source = f'extern "C" __global__ void k(unsigned *out) {{ unsigned p = threadIdx.x; {code} out[p] = 1; }}'
    arch = "sm_90a" if what == "wgmma" else "sm_90"
    kernel = lk.cuda_kernel(source, "k", arch=arch)
    with pytest.raises(KernelFault, match=f"{what}.*which the emulator does not have") as found:
        lk.emulate(kernel, 1, 32, (np.zeros(32, np.uint32),))
    assert found.value.kind == "unsupported"


ONE = "sqrt rsqrt rcp log log2 log10 exp exp2 exp10 sin cos tanh floor ceil rint trunc".split()
TWO = "add sub mul div max min max_nan min_nan add_rn add_sat".split()
COMPARE = "eq ne lt le gt ge equ neu ltu leu gtu geu".split()


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_half_precision_headers(kind):
    """Every function of cuda_fp16.h or cuda_bf16.h of one or two numbers runs; their results are near NumPy's."""
    one = {"half": "half", "bfloat16": "__nv_bfloat16"}[kind]
    pair = {"half": "half2", "bfloat16": "__nv_bfloat162"}[kind]
    calls = [f"h{n}(x)" for n in ONE] + [f"__h{n}(x, y)" for n in TWO]
    calls += [f"__low2float(h2{n}(xx))" for n in ONE]
    paired = ["__h2div" if n == "div" else f"__h{n[:3]}2{n[3:]}" for n in TWO]
    calls += [f"__high2float({n}(yy, yy))" for n in paired]
    calls += [f"(__h{n}(x, y) ? 1.f : 0.f)" for n in COMPARE]
    calls += [f"(__hb{n}2(xx, yy) ? 1.f : 0.f)" for n in COMPARE]
    calls += [f"__{kind}2int_{m}(x)" for m in ("rn", "rz", "ru", "rd")]
    calls += [f"__int2{kind}_{m}(1000001)" for m in ("rn", "rz", "ru", "rd") if kind == "bfloat16"]
    lines = "".join(f"o[{k}] = (float)({call});\n" for k, call in enumerate(calls))
    source = f"""#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(float *o, float a, float b, unsigned short *sum, unsigned short *sums)
{{
    {one} x = __float2{kind}(a), y = __float2{kind}(b);
    {pair} xx = __halves2{kind}2(x, x), yy = __halves2{kind}2(y, y);
    {lines}
    atomicAdd(({one} *)sum, x);
    atomicAdd(({pair} *)sums, yy);
}}
"""
    out = np.full(len(calls), np.nan, np.float32)
    total = np.zeros(2, np.uint16), np.zeros(2, np.uint16)
    a, b = np.float32(1.25), np.float32(0.375)  # exact in both types
    lk.emulate(lk.cuda_kernel(source, "k"), 1, 32, (out, a, b, *total))
    functions = {"rsqrt": lambda v: v**-0.5, "rcp": lambda v: 1 / v, "exp10": lambda v: 10**v}
    unary = [functions.get(n) or getattr(np, n) for n in ONE]
    names = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum"}
    binary = {short: getattr(np, name) for short, name in names.items()}
    want = [f(a) for f in unary] + [binary[n[:3]](a, b) if n != "add_sat" else 1 for n in TWO]
    want += [f(a) for f in unary] + [binary[n[:3]](b, b) for n in TWO]
    tests = [a == b, a != b, a < b, a <= b, a > b, a >= b] * 4
    want += [*tests, 1, 1, 2, 1]
    want += [999424, 999424, 1003520, 999424] if kind == "bfloat16" else []
    np.testing.assert_allclose(out, want, rtol=2.0**-7 if kind == "bfloat16" else 2.0**-10)
    exact = slice(len(ONE), len(ONE) + 3)
    if kind == "half":
        assert out[exact].tolist() == [1.625, 0.875, 0.46875]
    one, two = (t.view(np.float16) if kind == "half" else (t.astype(np.uint32) << 16).view(np.float32) for t in total)
    assert one[0] == 32 * 1.25 and (two == 32 * 0.375).all()
