// accumulator/wide: y[r] = sum over k of x[r, k]; x in float16, y and every sum in float32. A warp per row.
//
// Against scalar: eight numbers per lane and load. A row of any length may begin anywhere, and a 16-byte load only at
// a multiple of 16 bytes: the numbers before the first such place, and those after the last, are added one by one.
// Watch: requests, an eighth as many; bytes in flight.
//
// launch accumulator_wide<<<((R + WARPS - 1) / WARPS), (32, WARPS), 0>>>(y, x, R, K)

#include <cuda_fp16.h>

constexpr int WARPS = 8;

static __device__ float sum_of(uint4 eight)
{
    const half2 *pairs = (const half2 *)&eight;
    float total = 0.0f;
    for (int k = 0; k < 4; ++k) {
        float2 both = __half22float2(pairs[k]);  // to float32 first: float16 would round each sum
        total += both.x + both.y;
    }
    return total;
}

extern "C" __global__ void accumulator_wide(float *y, const half *x, int R, int K)
{
    int lane = threadIdx.x;
    int r = blockIdx.x * WARPS + threadIdx.y;
    if (r >= R)  // the same for all lanes of a warp
        return;
    const half *row = x + (size_t)r * K;
    float total = 0.0f;
    // BEGIN SOLUTION
    int head = min(K, (int)((16 - (size_t)row % 16) % 16 / 2));  // numbers before the first multiple of 16 bytes
    int eights = (K - head) / 8;
    if (lane < head)
        total += __half2float(row[lane]);
    const uint4 *body = (const uint4 *)(row + head);
    #pragma unroll 4
    for (int k = lane; k < eights; k += 32)
        total += sum_of(body[k]);
    int k = head + 8 * eights + lane;  // fewer than eight are left
    if (k < K)
        total += __half2float(row[k]);
    // END SOLUTION
    for (int distance = 16; distance; distance /= 2)
        total += __shfl_down_sync(0xffffffff, total, distance);
    if (lane == 0)
        y[r] = total;
}
