// rmsnorm/vectorized: y[r, c] = x[r, c] / sqrt(mean of x[r]^2 + eps) * w[c] in float32, each row read once.
//
// Against fused: a thread keeps its numbers of the row in registers, up to 4 pieces of 4, between the sum and the
// product. The block grows with the row, to 1024 threads; of short rows it takes several, a group of warps for each.
// A row that is too long for the registers is read twice.
// Watch: global load sectors and requests fall; bytes in flight rise.
//
// launch rmsnorm_vectorized<<<((rows - 1) / TOGETHER + 1), (THREADS, TOGETHER), 0>>>(y, x, w, rows, cols, eps)

#define THREADS min(1024, (cols + 511) / 512 * 32)  // per row: one for 16 numbers, in whole warps
#define TOGETHER max(1, 256 / THREADS)              // rows of a block

constexpr int PIECES = 4;                           // of 4 numbers, kept by a thread

// 4 numbers from p on, of which the first `left` exist, and 0 in place of the others. `once`: not to be kept in caches.
__device__ __forceinline__ float4 load4(const float *p, int left, bool aligned, bool once)
{
    if (aligned && left >= 4)
        return once ? __ldcs((const float4 *)p) : *(const float4 *)p;
    return make_float4(left > 0 ? p[0] : 0.0f, left > 1 ? p[1] : 0.0f, left > 2 ? p[2] : 0.0f, left > 3 ? p[3] : 0.0f);
}

__device__ __forceinline__ void store4(float *p, float4 v, int left, bool aligned)
{
    if (aligned && left >= 4) {
        __stcs((float4 *)p, v);
        return;
    }
    if (left > 0) p[0] = v.x;
    if (left > 1) p[1] = v.y;
    if (left > 2) p[2] = v.z;
    if (left > 3) p[3] = v.w;
}

__device__ __forceinline__ float squares4(float4 v) { return (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w); }

__device__ __forceinline__ float4 scaled(float4 v, float f, float4 w)
{
    return make_float4(v.x * f * w.x, v.y * f * w.y, v.z * f * w.z, v.w * f * w.w);
}

// The sum over a row's threads (threadIdx.y is the row in the block), in every one of them.
__device__ __forceinline__ float row_sum(float value)
{
    __shared__ float slots[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_xor_sync(0xffffffff, value, d);
    if (warps == 1)
        return value;
    if (lane == 0)
        slots[threadIdx.y * warps + threadIdx.x / 32] = value;
    __syncthreads();  // all warps' sums are there
    value = lane < warps ? slots[threadIdx.y * warps + lane] : 0.0f;
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_xor_sync(0xffffffff, value, d);
    return value;
}

extern "C" __global__ void __launch_bounds__(1024)
rmsnorm_vectorized(float *y, const float *x, const float *w, int rows, int cols, float eps)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    int own = row < rows ? cols : 0;  // numbers in this row; the last block may have rows too many, which wait along
    const float *from = x + (size_t)row * cols;
    float *to = y + (size_t)row * cols;
    bool aligned = cols % 4 == 0 && (size_t)x % 16 == 0 && (size_t)y % 16 == 0 && (size_t)w % 16 == 0;
    int first = 4 * threadIdx.x, stride = 4 * blockDim.x;  // this thread's pieces of the row
    // BEGIN SOLUTION
    float squares = 0.0f;
    if (cols <= PIECES * stride) {
        float4 v[PIECES];
        for (int k = 0; k < PIECES; ++k)
            v[k] = load4(from + first + k * stride, own - first - k * stride, aligned, true);
        for (int k = 0; k < PIECES; ++k)
            squares += squares4(v[k]);
        float scale = rsqrtf(row_sum(squares) / cols + eps);
        for (int k = 0; k < PIECES; ++k) {
            int c = first + k * stride;
            store4(to + c, scaled(v[k], scale, load4(w + c, own - c, aligned, false)), own - c, aligned);
        }
        return;
    }
    for (long long c = first; c < own; c += stride)
        squares += squares4(load4(from + c, own - c, aligned, false));
    float scale = rsqrtf(row_sum(squares) / cols + eps);
    for (long long c = first; c < own; c += stride) {
        float4 v = load4(from + c, own - c, aligned, true);
        store4(to + c, scaled(v, scale, load4(w + c, own - c, aligned, false)), own - c, aligned);
    }
    // END SOLUTION
}
