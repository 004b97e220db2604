// What the operators' checks share. Every check ends in one sentence: the operator, the fault, the mend.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#ifdef LABKIT_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace labkit {

using at::Tensor;
using c10::SymInt;

constexpr int64_t LARGEST = 2147483647;  // dimensions and indices of a row are 32-bit integers in the kernels

inline void check_contiguous(const char *op, const char *name, const Tensor &t)
{
    TORCH_CHECK(t.is_contiguous(), op, ": ", name, " must be contiguous, but its strides are ", t.sym_strides(),
                "; call .contiguous() on it.");
}

// Copies of 16 bytes begin on 16 bytes. Only tensors with data can be asked.
inline void check_aligned(const char *op, const char *name, const Tensor &t)
{
    TORCH_CHECK(reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0, op, ": ", name,
                " must begin on a multiple of 16 bytes in memory, and this part of another tensor does not; call .clone() on it.");
}

inline void check_dtype(const char *op, const char *name, const Tensor &t, at::ScalarType dtype, const char *wanted)
{
    TORCH_CHECK(t.scalar_type() == dtype, op, ": ", name, " must be ", wanted, ", not ", t.scalar_type(),
                "; convert it with .to().");
}

inline void check_same(const char *op, const char *first, const Tensor &a, const char *second, const Tensor &b)
{
    TORCH_CHECK(a.scalar_type() == b.scalar_type(), op, ": ", first, " is ", a.scalar_type(), " and ", second, " is ",
                b.scalar_type(), "; convert one of them, so that they agree.");
}

inline void check_device(const char *op, const char *first, const Tensor &a, const char *second, const Tensor &b)
{
    TORCH_CHECK(a.device() == b.device(), op, ": ", first, " is on ", a.device(), " and ", second, " is on ", b.device(),
                "; move one of them, so that they agree.");
}

// On the CPU there are no kernels: the arguments are checked all the same, so that the first fault is named first.
[[noreturn]] inline void only_cuda(const char *op)
{
    TORCH_CHECK(false, op, " runs on CUDA tensors, and these are on the CPU; move them with .cuda().");
}

}  // namespace labkit
