// Attention: schemas, the checks of their arguments, what they return (for torch.compile, without data), and on a GPU
// the launches that generate.py makes of the kernel files.
//
// Checked are dimensions, sizes, types, devices, strides, and where tensors with data begin. What tensors contain is
// not looked at, for the host would have to wait for it: NaN, or a length beyond a cache, is the caller's.

#include "checks.h"

#ifdef LABKIT_CUDA
#include "launches.h"
#endif

namespace {

using namespace labkit;

constexpr int64_t MOST_ROWS = 1 << 30;      // of all heads of a tensor: what grids and indices of kernels bear
constexpr int64_t MOST_SCORED = 65535 * 8;  // gridDim.y, by the rows of a tile, where all scores are kept
constexpr int64_t MOST_TOKENS = 1 << 24;    // of a cache: offsets within a sequence are 32-bit integers
constexpr int64_t HEAD = 128;               // numbers of a head of a cache

struct Sizes {
    SymInt b, h, hk, n, nk, d;
};

struct Heads {  // a tensor [batch, heads, length, head dimension]
    const char *name;
    Tensor tensor;
};

// q, k, v, and what has the shape of q.
Sizes check_heads(const char *op, const Tensor &q, const Tensor &k, const Tensor &v, double scale,
                  std::initializer_list<Heads> like_q = {})
{
    std::vector<Heads> all{{"q", q}, {"k", k}, {"v", v}};
    all.insert(all.end(), like_q);
    for (const auto &[name, t] : all) {
        TORCH_CHECK(t.dim() == 4, op, ": ", name, " must have 4 dimensions, [batch, heads, length, head dimension], but it has ",
                    t.dim(), "; reshape it to four.");
        TORCH_CHECK(t.sym_numel() > 0, op, ": ", name, " is empty, ", t.sym_sizes(), "; every dimension must be at least 1.");
    }
    auto dtype = q.scalar_type();
    TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, op,
                ": q must be float32, float16 or bfloat16, not ", dtype, "; convert it with .to().");
    for (const auto &[name, t] : all) {
        check_same(op, "q", q, name, t);
        check_device(op, "q", q, name, t);
        check_contiguous(op, name, t);
    }
    Sizes s{q.sym_size(0), q.sym_size(1), k.sym_size(1), q.sym_size(2), k.sym_size(2), q.sym_size(3)};
    TORCH_CHECK(v.sym_sizes() == k.sym_sizes(), op, ": k is ", k.sym_sizes(), " and v is ", v.sym_sizes(),
                "; every key needs a value of the same size.");
    TORCH_CHECK(k.sym_size(0) == s.b, op, ": q has ", s.b, " batches and k has ", k.sym_size(0), "; they must be the same number.");
    TORCH_CHECK(k.sym_size(3) == s.d, op, ": heads have ", s.d, " numbers in q and ", k.sym_size(3),
                " in k; they must be the same number.");
    TORCH_CHECK(s.d == 32 || s.d == 64 || s.d == 128, op, ": the head dimension must be 32, 64 or 128, not ", s.d,
                "; pad heads with zeros to one of these.");
    TORCH_CHECK(s.h % s.hk == 0, op, ": ", s.h, " query heads cannot share ", s.hk,
                " key heads evenly; the first must be a multiple of the second.");
    for (const auto &[name, t] : like_q)
        TORCH_CHECK(t.sym_sizes() == q.sym_sizes(), op, ": ", name, " is ", t.sym_sizes(), " and q is ", q.sym_sizes(),
                    "; they must have the same shape.");
    TORCH_CHECK(s.b * s.h * s.n <= MOST_ROWS && s.b * s.hk * s.nk <= MOST_ROWS, op, ": a tensor has too many rows, ",
                s.b * s.h * s.n, " queries and ", s.b * s.hk * s.nk, " keys; pass fewer batches or heads at a time, at most ",
                MOST_ROWS, " rows.");
    TORCH_CHECK(std::isfinite(scale) && scale >= 0.0, op, ": scale must be positive, or 0 for 1 / sqrt(head dimension), not ",
                scale, ".");
    return s;
}

// The kernels that keep all scores are there in float32 alone.
Sizes check_scored(const char *op, const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    Sizes s = check_heads(op, q, k, v, scale);
    check_dtype(op, "q", q, at::kFloat, "float32");
    TORCH_CHECK(s.n <= MOST_SCORED && s.nk <= MOST_SCORED, op, ": all scores of ", s.n, " queries and ", s.nk,
                " keys are too many; use flash_attention, which keeps none.");
    return s;
}

Sizes check_backward(const Tensor &grad, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out,
                     const Tensor &lse, double scale)
{
    constexpr const char *op = "flash_attention_backward";
    Sizes s = check_heads(op, q, k, v, scale, {{"grad", grad}, {"out", out}});
    check_dtype(op, "lse", lse, at::kFloat, "float32");
    check_device(op, "q", q, "lse", lse);
    check_contiguous(op, "lse", lse);
    TORCH_CHECK(lse.dim() == 3 && lse.sym_size(0) == s.b && lse.sym_size(1) == s.h && lse.sym_size(2) == s.n, op, ": lse is ",
                lse.sym_sizes(), "; pass the one that flash_attention returned, [", s.b, ", ", s.h, ", ", s.n, "].");
    return s;
}

struct Cached {
    SymInt b, t, hq;
};

// row: elements of a row of a cache.
Cached check_cached(const char *op, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths,
                    at::ScalarType dtype, const char *wanted, int64_t row)
{
    TORCH_CHECK(q.dim() == 3, op, ": q must have 3 dimensions, [batch, heads, 128], but it has ", q.dim(), "; reshape it to three.");
    TORCH_CHECK(q.sym_numel() > 0, op, ": q is empty, ", q.sym_sizes(), "; every dimension must be at least 1.");
    check_dtype(op, "q", q, at::kBFloat16, "bfloat16");
    check_contiguous(op, "q", q);
    Cached s{q.sym_size(0), 0, q.sym_size(1)};
    TORCH_CHECK(q.sym_size(2) == HEAD, op, ": heads of q must have 128 numbers, not ", q.sym_size(2), ".");
    for (const auto &[name, t] : {Heads{"k_cache", k}, Heads{"v_cache", v}}) {
        TORCH_CHECK(t.dim() == 4, op, ": ", name, " must have 4 dimensions, [batch, tokens, 1, ", row, "], but it has ", t.dim(),
                    "; reshape it to four.");
        TORCH_CHECK(t.sym_numel() > 0, op, ": ", name, " is empty, ", t.sym_sizes(), "; every dimension must be at least 1.");
        check_dtype(op, name, t, dtype, wanted);
        check_device(op, "q", q, name, t);
        check_contiguous(op, name, t);
        TORCH_CHECK(t.sym_size(0) == s.b, op, ": q has ", s.b, " sequences and ", name, " has ", t.sym_size(0),
                    "; they must be the same number.");
        TORCH_CHECK(t.sym_size(2) == 1, op, ": ", name, " has ", t.sym_size(2), " heads, and all query heads share one; pass a cache of one.");
        TORCH_CHECK(t.sym_size(3) == row, op, ": rows of ", name, " have ", t.sym_size(3), " ",
                    dtype == at::kByte ? "bytes" : "numbers", ", and must have ", row, ".");
    }
    s.t = k.sym_size(1);
    TORCH_CHECK(v.sym_size(1) == s.t, op, ": k_cache has ", s.t, " tokens and v_cache has ", v.sym_size(1),
                "; they must be the same number.");
    TORCH_CHECK(lengths.dim() == 1 && lengths.sym_size(0) == s.b, op, ": lengths is ", lengths.sym_sizes(), ", and there are ", s.b,
                " sequences; pass one length for each.");
    check_dtype(op, "lengths", lengths, at::kInt, "int32");
    check_device(op, "q", q, "lengths", lengths);
    check_contiguous(op, "lengths", lengths);
    TORCH_CHECK(s.b <= 65535 && s.hq <= MOST_SCORED && s.t <= MOST_TOKENS && s.b * s.t <= LARGEST, op, ": ", s.b, " sequences of ",
                s.hq, " query heads and ", s.t, " tokens are too many; at most 65535 sequences, ", MOST_SCORED, " heads and ",
                MOST_TOKENS, " tokens, and ", LARGEST, " tokens of all sequences, are served at once.");
    return s;
}

Cached check_gqa(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths)
{
    return check_cached("gqa_decode", q, k, v, lengths, at::kBFloat16, "bfloat16", HEAD);
}

Cached check_int4_gqa(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths, int64_t groups)
{
    constexpr const char *op = "int4_gqa_decode";
    TORCH_CHECK(groups == 1 || groups == 4, op, ": rows have 1 or 4 groups, not ", groups, ".");
    return check_cached(op, q, k, v, lengths, at::kByte, "uint8", 4 * groups + HEAD / 2);
}

// What is returned, without data.

using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Tensor naive_attention_meta(const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    check_scored("naive_attention", q, k, v, scale);
    return at::empty_like(q);
}

Tensor tiled_attention_meta(const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    check_scored("tiled_attention", q, k, v, scale);
    return at::empty_like(q);
}

Two flash_attention_meta(const Tensor &q, const Tensor &k, const Tensor &v, double scale, bool is_causal)
{
    Sizes s = check_heads("flash_attention", q, k, v, scale);
    return {at::empty_like(q), at::empty_symint({s.b, s.h, s.n}, q.options().dtype(at::kFloat))};
}

Three flash_attention_backward_meta(const Tensor &grad, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out,
                                    const Tensor &lse, double scale, bool is_causal)
{
    check_backward(grad, q, k, v, out, lse, scale);
    return {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
}

Tensor gqa_decode_meta(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths)
{
    check_gqa(q, k, v, lengths);
    return at::empty_like(q);
}

Tensor int4_gqa_decode_meta(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths, int64_t groups)
{
    check_int4_gqa(q, k, v, lengths, groups);
    return at::empty_like(q);
}

// With data: also where it lies.

void check_all_aligned(const char *op, std::initializer_list<Heads> all)
{
    for (const auto &[name, t] : all)
        check_aligned(op, name, t);
}

Tensor naive_attention_cpu(const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    check_scored("naive_attention", q, k, v, scale);
    only_cuda("naive_attention");
}

Tensor tiled_attention_cpu(const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    check_scored("tiled_attention", q, k, v, scale);
    only_cuda("tiled_attention");
}

Two flash_attention_cpu(const Tensor &q, const Tensor &k, const Tensor &v, double scale, bool is_causal)
{
    check_heads("flash_attention", q, k, v, scale);
    check_all_aligned("flash_attention", {{"q", q}, {"k", k}, {"v", v}});
    only_cuda("flash_attention");
}

Three flash_attention_backward_cpu(const Tensor &grad, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out,
                                   const Tensor &lse, double scale, bool is_causal)
{
    constexpr const char *op = "flash_attention_backward";
    check_backward(grad, q, k, v, out, lse, scale);
    check_all_aligned(op, {{"grad", grad}, {"q", q}, {"k", k}, {"v", v}, {"out", out}});
    only_cuda(op);
}

Tensor gqa_decode_cpu(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths)
{
    check_gqa(q, k, v, lengths);
    check_all_aligned("gqa_decode", {{"q", q}, {"k_cache", k}, {"v_cache", v}});
    only_cuda("gqa_decode");
}

Tensor int4_gqa_decode_cpu(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths, int64_t groups)
{
    check_int4_gqa(q, k, v, lengths, groups);
    check_all_aligned("int4_gqa_decode", {{"q", q}, {"k_cache", k}, {"v_cache", v}});
    only_cuda("int4_gqa_decode");
}

#ifdef LABKIT_CUDA

int64_t of(const SymInt &size) { return size.expect_int(); }

using Scored = decltype(&launch_attention_naive);

Tensor scored(const char *op, Scored launch, const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    Sizes s = check_scored(op, q, k, v, scale);
    c10::cuda::CUDAGuard device(q.device());
    Tensor out = at::empty_like(q), lse = at::empty({of(s.b), of(s.h), of(s.n)}, q.options());
    launch(out, lse, q, k, v, of(s.b), of(s.h), of(s.hk), of(s.n), of(s.nk), of(s.d), scale, 0);
    return out;
}

Tensor naive_attention_cuda(const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    return scored("naive_attention", launch_attention_naive, q, k, v, scale);
}

Tensor tiled_attention_cuda(const Tensor &q, const Tensor &k, const Tensor &v, double scale)
{
    return scored("tiled_attention", launch_attention_tiled, q, k, v, scale);
}

Two flash_attention_cuda(const Tensor &q, const Tensor &k, const Tensor &v, double scale, bool is_causal)
{
    Sizes s = check_heads("flash_attention", q, k, v, scale);
    check_all_aligned("flash_attention", {{"q", q}, {"k", k}, {"v", v}});
    c10::cuda::CUDAGuard device(q.device());
    Tensor out = at::empty_like(q), lse = at::empty({of(s.b), of(s.h), of(s.n)}, q.options().dtype(at::kFloat));
    auto launch = q.scalar_type() == at::kFloat  ? launch_attention_flash_double_buffered
                  : q.scalar_type() == at::kHalf ? launch_attention_f16_flash_mma
                                                 : launch_attention_bf16_flash_mma;
    launch(out, lse, q, k, v, of(s.b), of(s.h), of(s.hk), of(s.n), of(s.nk), of(s.d), scale, is_causal);
    return {out, lse};
}

Three flash_attention_backward_cuda(const Tensor &grad, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out,
                                    const Tensor &lse, double scale, bool is_causal)
{
    constexpr const char *op = "flash_attention_backward";
    Sizes s = check_backward(grad, q, k, v, out, lse, scale);
    check_all_aligned(op, {{"grad", grad}, {"q", q}, {"k", k}, {"v", v}, {"out", out}});
    c10::cuda::CUDAGuard device(q.device());
    if (q.scalar_type() != at::kFloat)
        at::globalContext().alertNotDeterministic(op);  // the gradient of q is summed by atomics
    Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    auto launch = q.scalar_type() == at::kFloat  ? launch_attention_backward_recompute
                  : q.scalar_type() == at::kHalf ? launch_attention_backward_f16_mma
                                                 : launch_attention_backward_bf16_mma;
    launch(dq, dk, dv, q, k, v, out, lse, grad, of(s.b), of(s.h), of(s.hk), of(s.n), of(s.nk), of(s.d), scale, is_causal);
    return {dq, dk, dv};
}

Tensor gqa_decode_cuda(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths)
{
    Cached s = check_gqa(q, k, v, lengths);
    check_all_aligned("gqa_decode", {{"q", q}, {"k_cache", k}, {"v_cache", v}});
    c10::cuda::CUDAGuard device(q.device());
    Tensor out = at::empty_like(q);
    launch_gqa_bf16_direct_mma(out, q, k, v, lengths, of(s.b), of(s.t), of(s.hq), 1);
    return out;
}

Tensor int4_gqa_decode_cuda(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &lengths, int64_t groups)
{
    Cached s = check_int4_gqa(q, k, v, lengths, groups);
    check_all_aligned("int4_gqa_decode", {{"q", q}, {"k_cache", k}, {"v_cache", v}});
    c10::cuda::CUDAGuard device(q.device());
    Tensor out = at::empty_like(q);
    auto launch = groups == 1 ? launch_int4_gqa_opt11_direct_mma : launch_int4_gqa_4group_opt11_direct_mma;
    launch(out, q, k, v, lengths, of(s.b), of(s.t), of(s.hq), 1);  // it cuts the tokens by itself, not by split_k
    return out;
}

#endif

}  // namespace

TORCH_LIBRARY_FRAGMENT(labkit, m)
{
    const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
    m.def("naive_attention(Tensor q, Tensor k, Tensor v, float scale=0.0) -> Tensor", tags);
    m.def("tiled_attention(Tensor q, Tensor k, Tensor v, float scale=0.0) -> Tensor", tags);
    m.def("flash_attention(Tensor q, Tensor k, Tensor v, float scale=0.0, bool is_causal=False) -> (Tensor out, Tensor lse)", tags);
    m.def("flash_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, float scale=0.0, "
          "bool is_causal=False) -> (Tensor, Tensor, Tensor)", tags);
    m.def("gqa_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths) -> Tensor", tags);
    m.def("int4_gqa_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, int groups=1) -> Tensor", tags);
}

#define IMPLEMENT(KEY, kind)                                                     \
    TORCH_LIBRARY_IMPL(labkit, KEY, m)                                           \
    {                                                                            \
        m.impl("naive_attention", naive_attention_##kind);                       \
        m.impl("tiled_attention", tiled_attention_##kind);                       \
        m.impl("flash_attention", flash_attention_##kind);                       \
        m.impl("flash_attention_backward", flash_attention_backward_##kind);     \
        m.impl("gqa_decode", gqa_decode_##kind);                                 \
        m.impl("int4_gqa_decode", int4_gqa_decode_##kind);                       \
    }

IMPLEMENT(Meta, meta)
IMPLEMENT(CPU, cpu)
#ifdef LABKIT_CUDA
IMPLEMENT(CUDA, cuda)
#endif
