// cpy_f32_f16/plain: dst[h, t, d] = half(x[t, h, d]), one thread per number, in blocks of 256.
//
// The first rung, and llama.cpp's own: the numbers of dst are counted through, and divisions find the three indices,
// from which the strides of either side make an address.
// Watch: load and store requests; a warp stores 64 bytes with each.
//
// launch cpy_plain<<<((T * H * D + 255) / 256), (256), 0>>>(dst, x, T, H, D)

#include <cuda_fp16.h>

extern "C" __global__ void cpy_plain(half *dst, const float *x, int T, int H, int D)
{
    // BEGIN SOLUTION
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (size_t)T * H * D) {
        size_t h = i / ((size_t)T * D), t = i / D % T, d = i % D;
        dst[i] = __float2half(x[(t * H + h) * D + d]);
    }
    // END SOLUTION
}
