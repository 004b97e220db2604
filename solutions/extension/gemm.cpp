// The products of matrices: schemas, the checks of their arguments, what they return (for torch.compile, without data),
// and on a GPU the launches that generate.py makes of the kernel files.
//
// Every check ends in one sentence, before anything is launched.

#include "checks.h"

#ifdef LABKIT_CUDA
#include "launches.h"
#endif

namespace {

using namespace labkit;

constexpr int64_t MOST_ROWS = 65535 * 128;  // gridDim.y, by the rows of a tile

void check_matrix(const char *op, const char *name, const Tensor &t)
{
    TORCH_CHECK(t.dim() == 2, op, ": ", name, " must be a matrix, but it has ", t.dim(), " dimensions; reshape it to two.");
    TORCH_CHECK(t.sym_size(0) > 0 && t.sym_size(1) > 0, op, ": ", name, " is empty (", t.sym_size(0), " x ", t.sym_size(1),
                "); pass a matrix with at least one row and one column.");
    TORCH_CHECK(t.sym_size(0) <= LARGEST && t.sym_size(1) <= LARGEST, op, ": ", name, " is too large (", t.sym_size(0), " x ",
                t.sym_size(1), "); no dimension may exceed 2147483647.");
}

void check_pair(const char *op, const Tensor &a, const Tensor &b, at::ArrayRef<at::ScalarType> dtypes, const char *wanted)
{
    check_matrix(op, "a", a);
    check_matrix(op, "b", b);
    bool known = std::find(dtypes.begin(), dtypes.end(), a.scalar_type()) != dtypes.end();
    TORCH_CHECK(known, op, ": a must be ", wanted, ", not ", a.scalar_type(), "; convert it with .to().");
    check_same(op, "a", a, "b", b);
    check_device(op, "a", a, "b", b);
}

void check_product(const char *op, const SymInt &m, const SymInt &n, const SymInt &k, const SymInt &k_of_b)
{
    TORCH_CHECK(k == k_of_b, op, ": the inner dimensions differ, ", k, " of a and ", k_of_b,
                " of b; they must be the same number.");
    TORCH_CHECK(m <= MOST_ROWS, op, ": the product has too many rows (", m, "); split a into pieces of at most ", MOST_ROWS,
                " rows.");
}

struct Sizes {
    SymInt m, n, k;
};

Sizes check_gemm(const Tensor &a, const Tensor &b, double alpha, double beta, bool trans_a, bool trans_b,
                 const std::optional<Tensor> &c)
{
    constexpr const char *op = "gemm";
    check_pair(op, a, b, {at::kFloat}, "float32");
    check_contiguous(op, "a", a);
    check_contiguous(op, "b", b);
    Sizes s{a.sym_size(trans_a), b.sym_size(!trans_b), a.sym_size(!trans_a)};
    check_product(op, s.m, s.n, s.k, b.sym_size(trans_b));
    TORCH_CHECK(std::isfinite(alpha) && std::isfinite(beta), op, ": alpha and beta must be finite, not ", alpha, " and ", beta, ".");
    TORCH_CHECK(beta == 0.0 || c.has_value(), op, ": beta is ", beta, " and there is no c to multiply by it; pass c, or beta=0.");
    if (c.has_value()) {
        check_matrix(op, "c", *c);
        check_contiguous(op, "c", *c);
        TORCH_CHECK(c->sym_size(0) == s.m && c->sym_size(1) == s.n, op, ": c is ", c->sym_size(0), " x ", c->sym_size(1),
                    ", and the product is ", s.m, " x ", s.n, "; pass a c of that shape.");
        check_dtype(op, "c", *c, at::kFloat, "float32");
        check_device(op, "c", *c, "a", a);
    }
    return s;
}

Sizes check_tensor_core_gemm(const Tensor &a, const Tensor &b)
{
    constexpr const char *op = "tensor_core_gemm";
    check_pair(op, a, b, {at::kHalf, at::kBFloat16}, "float16 or bfloat16");
    check_contiguous(op, "a", a);
    check_contiguous(op, "b", b);
    Sizes s{a.sym_size(0), b.sym_size(1), a.sym_size(1)};
    check_product(op, s.m, s.n, s.k, b.sym_size(0));
    return s;
}

Sizes check_tensor_core_gemm_int8(const Tensor &a, const Tensor &b)
{
    constexpr const char *op = "tensor_core_gemm_int8";
    check_pair(op, a, b, {at::kChar}, "int8");
    check_contiguous(op, "a", a);
    TORCH_CHECK(b.t().is_contiguous(), op, ": b must have its columns in a row in memory, but its strides are ", b.sym_strides(),
                "; pass w.t() of a contiguous w with the shape of b.t().");
    Sizes s{a.sym_size(0), b.sym_size(1), a.sym_size(1)};
    check_product(op, s.m, s.n, s.k, b.sym_size(0));
    TORCH_CHECK(s.k <= 131071, op, ": sums of ", s.k, " products of int8 may not fit into int32; split K into pieces of at most 131071.");
    return s;
}

// What is returned, without data.

Tensor gemm_meta(const Tensor &a, const Tensor &b, double alpha, double beta, bool trans_a, bool trans_b,
                 const std::optional<Tensor> &c)
{
    Sizes s = check_gemm(a, b, alpha, beta, trans_a, trans_b, c);
    return at::empty_symint({s.m, s.n}, a.options());
}

Tensor tensor_core_gemm_meta(const Tensor &a, const Tensor &b)
{
    Sizes s = check_tensor_core_gemm(a, b);
    return at::empty_symint({s.m, s.n}, a.options().dtype(at::kFloat));
}

Tensor tensor_core_gemm_int8_meta(const Tensor &a, const Tensor &b)
{
    Sizes s = check_tensor_core_gemm_int8(a, b);
    return at::empty_symint({s.m, s.n}, a.options().dtype(at::kInt));
}

Tensor gemm_cpu(const Tensor &a, const Tensor &b, double alpha, double beta, bool trans_a, bool trans_b,
                const std::optional<Tensor> &c)
{
    check_gemm(a, b, alpha, beta, trans_a, trans_b, c);
    only_cuda("gemm");
}

Tensor tensor_core_gemm_cpu(const Tensor &a, const Tensor &b)
{
    check_tensor_core_gemm(a, b);
    only_cuda("tensor_core_gemm");
}

Tensor tensor_core_gemm_int8_cpu(const Tensor &a, const Tensor &b)
{
    check_tensor_core_gemm_int8(a, b);
    only_cuda("tensor_core_gemm_int8");
}

#ifdef LABKIT_CUDA

Tensor gemm_cuda(const Tensor &a, const Tensor &b, double alpha, double beta, bool trans_a, bool trans_b,
                 const std::optional<Tensor> &c)
{
    Sizes s = check_gemm(a, b, alpha, beta, trans_a, trans_b, c);
    c10::cuda::CUDAGuard device(a.device());
    int64_t m = s.m.expect_int(), n = s.n.expect_int(), k = s.k.expect_int();
    Tensor out = c.has_value() && beta != 0.0 ? c->clone() : at::empty({m, n}, a.options());
    launch_gemm_register_2d(out, a, b, m, n, k, alpha, beta, trans_a, trans_b);
    return out;
}

Tensor tensor_core_gemm_cuda(const Tensor &a, const Tensor &b)
{
    Sizes s = check_tensor_core_gemm(a, b);
    c10::cuda::CUDAGuard device(a.device());
    int64_t m = s.m.expect_int(), n = s.n.expect_int(), k = s.k.expect_int();
    Tensor out = at::empty({m, n}, a.options().dtype(at::kFloat));
    auto launch = a.scalar_type() == at::kHalf ? launch_gemm_f16_mma_tuned : launch_gemm_bf16_mma_tuned;
    launch(out, a, b, m, n, k);
    return out;
}

Tensor tensor_core_gemm_int8_cuda(const Tensor &a, const Tensor &b)
{
    Sizes s = check_tensor_core_gemm_int8(a, b);
    c10::cuda::CUDAGuard device(a.device());
    int64_t m = s.m.expect_int(), n = s.n.expect_int(), k = s.k.expect_int();
    Tensor out = at::empty({m, n}, a.options().dtype(at::kInt));
    launch_gemm_int8_int8_mma(out, a, b.t(), m, n, k);
    return out;
}

#endif

}  // namespace

TORCH_LIBRARY(labkit, m)
{
    const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
    m.def("gemm(Tensor a, Tensor b, float alpha=1.0, float beta=0.0, bool trans_a=False, bool trans_b=False, "
          "Tensor? c=None) -> Tensor", tags);
    m.def("tensor_core_gemm(Tensor a, Tensor b) -> Tensor", tags);
    m.def("tensor_core_gemm_int8(Tensor a, Tensor b) -> Tensor", tags);
}

TORCH_LIBRARY_IMPL(labkit, Meta, m)
{
    m.impl("gemm", gemm_meta);
    m.impl("tensor_core_gemm", tensor_core_gemm_meta);
    m.impl("tensor_core_gemm_int8", tensor_core_gemm_int8_meta);
}

TORCH_LIBRARY_IMPL(labkit, CPU, m)
{
    m.impl("gemm", gemm_cpu);
    m.impl("tensor_core_gemm", tensor_core_gemm_cpu);
    m.impl("tensor_core_gemm_int8", tensor_core_gemm_int8_cpu);
}

#ifdef LABKIT_CUDA
TORCH_LIBRARY_IMPL(labkit, CUDA, m)
{
    m.impl("gemm", gemm_cuda);
    m.impl("tensor_core_gemm", tensor_core_gemm_cuda);
    m.impl("tensor_core_gemm_int8", tensor_core_gemm_int8_cuda);
}
#endif
