// matvec/vectorized: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; two rows per warp, 16 per block.
//
// Against block_transpose: a lane reads 8 weights at a time, 16 bytes, of two rows, and for both the same 8 numbers of
// x. Smaller blocks wait less for their last warp. The loop is unrolled 4 times, and the launch bounds (256, 1) let the
// compiler take the registers to have all of its loads in flight at once. Rows that do not start on 16 bytes go one
// number at a time.
// Watch: load requests; bytes in flight per lane.
//
// launch matvec_vectorized<<<((M + 15) / 16), (256), 0>>>(y, W, x, M, K)

#include <cuda_fp16.h>

constexpr int WARPS = 8;
constexpr int ROWS = 2;  // per warp

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

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
matvec_vectorized(float *y, const half *W, const float *x, int M, int K)
{
    __shared__ float sums[WARPS * ROWS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = (blockIdx.x * WARPS + warp) * ROWS;  // the first of this warp's
    bool aligned = K % 8 == 0 && ((size_t)W | (size_t)x) % 16 == 0;
    float sum[ROWS] = {};
    if (aligned && row + ROWS <= M) {
        // BEGIN SOLUTION
        int pieces = K / 8;
        const uint4 *w = (const uint4 *)(W + (size_t)row * K);
        const float4 *v = (const float4 *)x;
        #pragma unroll 4
        for (int p = lane; p < pieces; p += 32) {
            uint4 piece[ROWS];
            for (int r = 0; r < ROWS; ++r)
                piece[r] = __ldcs(w + (size_t)r * pieces + p);
            float4 a = v[2 * p], b = v[2 * p + 1];
            for (int r = 0; r < ROWS; ++r)
                sum[r] += dot8(piece[r], a, b);
        }
        // END SOLUTION
    } else {
        for (int r = 0; r < ROWS && row + r < M; ++r)
            for (int k = lane; k < K; k += 32)
                sum[r] += __half2float(W[(size_t)(row + r) * K + k]) * x[k];
    }
    for (int r = 0; r < ROWS; ++r) {
        sum[r] = warp_sum(sum[r]);
        if (lane == 0)
            sums[warp * ROWS + r] = sum[r];
    }
    __syncthreads();  // all sums of the block are there before the first warp reads them
    int mine = blockIdx.x * WARPS * ROWS + threadIdx.x;
    if (threadIdx.x < WARPS * ROWS && mine < M)
        y[mine] = sums[threadIdx.x];
}
