// accumulator/scalar: y[r] = sum over k of x[r, k]; x in float16, y and every sum in float32. A warp per row.
//
// The first rung. A lane adds every 32nd number of its row; then the warp adds up its 32 sums by shuffles.
// Watch: sectors per request; one request fetches 64 bytes.
//
// launch accumulator_scalar<<<((R + WARPS - 1) / WARPS), (32, WARPS), 0>>>(y, x, R, K)

#include <cuda_fp16.h>

constexpr int WARPS = 8;

extern "C" __global__ void accumulator_scalar(float *y, const half *x, int R, int K)
{
    int lane = threadIdx.x;
    int r = blockIdx.x * WARPS + threadIdx.y;
    if (r >= R)  // the same for all lanes of a warp
        return;
    const half *row = x + (size_t)r * K;
    float total = 0.0f;
    // BEGIN SOLUTION
    for (int k = lane; k < K; k += 32)
        total += __half2float(row[k]);
    // END SOLUTION
    for (int distance = 16; distance; distance /= 2)
        total += __shfl_down_sync(0xffffffff, total, distance);
    if (lane == 0)
        y[r] = total;
}
