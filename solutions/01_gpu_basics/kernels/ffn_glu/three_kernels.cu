// ffn_glu/three_kernels: h[m] = silu(W1[m] . x) * (W3[m] . x), weights float16, all else float32; three launches.
//
// The first rung, and yalm's first: two matvecs, a warp per row, then a kernel for silu and the product. What the
// matvecs find out goes to memory and comes back.
// Watch: launches; bytes written and read between them.
//
// workspace gate float32 (M)
// workspace up float32 (M)
// launch ffn_matvec<<<((M + 7) / 8), (256), 0>>>(gate, W1, x, M, K)
// launch ffn_matvec<<<((M + 7) / 8), (256), 0>>>(up, W3, x, M, K)
// launch ffn_silu_mul<<<((M + 255) / 256), (256), 0>>>(h, gate, up, M)

#include <cuda_fp16.h>

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

__device__ float dot8(uint4 w, float4 a, float4 b)  // 8 float16 times 8 float32
{
    const half2 *h = (const half2 *)&w;
    float2 p = __half22float2(h[0]), q = __half22float2(h[1]), r = __half22float2(h[2]), s = __half22float2(h[3]);
    return p.x * a.x + p.y * a.y + q.x * a.z + q.y * a.w + r.x * b.x + r.y * b.y + s.x * b.z + s.y * b.w;
}

extern "C" __global__ void __launch_bounds__(256, 1)
ffn_matvec(float *y, const half *W, const float *x, int M, int K)
{
    int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= M)
        return;
    bool aligned = K % 8 == 0 && ((size_t)W | (size_t)x) % 16 == 0;
    float sum = 0.0f;
    if (aligned) {
        const uint4 *w = (const uint4 *)(W + (size_t)row * K);
        const float4 *v = (const float4 *)x;
        #pragma unroll 4
        for (int p = lane; p < K / 8; p += 32)
            sum += dot8(w[p], v[2 * p], v[2 * p + 1]);
    } else {
        for (int k = lane; k < K; k += 32)
            sum += __half2float(W[(size_t)row * K + k]) * x[k];
    }
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = sum;
}

extern "C" __global__ void ffn_silu_mul(float *h, const float *gate, const float *up, int M)
{
    // BEGIN SOLUTION
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m < M)
        h[m] = gate[m] / (1.0f + expf(-gate[m])) * up[m];
    // END SOLUTION
}
