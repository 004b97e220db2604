// cpy_f32_f16/vectorized: dst[h, t, d] = half(x[t, h, d]), a thread for 8 neighbors of 4 tokens.
//
// Against plain: 8 numbers are read in two pieces of 16 bytes and written in one; those of 4 tokens are in flight at
// once; and the divisions serve 32 numbers.
// Watch: load and store requests.
//
// launch cpy_vectorized<<<(((T + 3) / 4 * H * ((D + 7) / 8) + 255) / 256), (256), 0>>>(dst, x, T, H, D)

#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int TOKENS = 4;

__device__ uint4 pack(float4 a, float4 b)  // 8 float32 as 8 float16, each rounded to the nearest
{
    half2 h[4] = {__floats2half2_rn(a.x, a.y), __floats2half2_rn(a.z, a.w),
                  __floats2half2_rn(b.x, b.y), __floats2half2_rn(b.z, b.w)};
    return *(uint4 *)h;
}

extern "C" __global__ void __launch_bounds__(THREADS)
cpy_vectorized(half *dst, const float *x, int T, int H, int D)
{
    unsigned eights = (D + 7) / 8;
    unsigned i = blockIdx.x * THREADS + threadIdx.x;  // counts eights along a row, then heads, then groups of tokens
    unsigned d = i % eights * 8, h = i / eights % H, t = i / eights / H * TOKENS;
    if (t >= T)
        return;
    int tokens = min(TOKENS, T - t);
    bool aligned = D % 8 == 0 && ((size_t)x | (size_t)dst) % 16 == 0;  // then every eight starts on 16 bytes
    if (aligned) {
        // BEGIN SOLUTION
        float4 a[TOKENS], b[TOKENS];
        for (int k = 0; k < TOKENS; ++k)  // all loads first: none waits for another
            if (k < tokens) {
                const float4 *from = (const float4 *)(x + ((size_t)(t + k) * H + h) * D + d);
                a[k] = from[0], b[k] = from[1];
            }
        for (int k = 0; k < TOKENS; ++k)
            if (k < tokens)
                *(uint4 *)(dst + ((size_t)h * T + t + k) * D + d) = pack(a[k], b[k]);
        // END SOLUTION
    } else {
        for (int k = 0; k < tokens; ++k)
            for (int j = d; j < D && j < d + 8; ++j)
                dst[((size_t)h * T + t + k) * D + j] = __float2half(x[((size_t)(t + k) * H + h) * D + j]);
    }
}
