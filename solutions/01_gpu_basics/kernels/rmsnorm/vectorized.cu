// rmsnorm/vectorized: y[r, c] = x[r, c] / sqrt(mean of x[r]^2 + eps) * w[c] in float32, each row read once.
//
// Against fused: a thread keeps its numbers of the row in registers, 4 pieces of 4, between the sum and the product.
// The block grows with the row, to 1024 threads; of short rows it takes several, a group of warps for each.
// A row that is too long for the registers takes several turns, and all but the last are read twice.
// Watch: global load sectors and requests fall; bytes in flight rise.
//
// launch rmsnorm_vectorized<<<((rows - 1) / TOGETHER + 1), (THREADS, TOGETHER), 0>>>(y, x, w, rows, cols, eps)

#define THREADS min(1024, (cols + 511) / 512 * 32)  // per row: one for 16 numbers, in whole warps
#define TOGETHER max(1, 256 / THREADS)              // rows of a block

constexpr int PIECES = 4;                           // of 4 numbers, kept by a thread

// 4 numbers from p on, of which the first `left` exist, and 0 in place of the others.
__device__ __forceinline__ float4 load4(const float *p, int left, bool aligned)
{
    if (aligned && left >= 4)
        return *(const float4 *)p;
    return make_float4(left > 0 ? p[0] : 0.0f, left > 1 ? p[1] : 0.0f, left > 2 ? p[2] : 0.0f, left > 3 ? p[3] : 0.0f);
}

__device__ __forceinline__ void store4(float *p, float4 v, int left, bool aligned)
{
    if (aligned && left >= 4) {
        *(float4 *)p = v;
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
    int stride = 4 * blockDim.x, turn = PIECES * stride;  // numbers from one piece to the next; of all threads' pieces
    int last = (cols - 1) / turn * turn;                  // where the last turn begins
    // BEGIN SOLUTION
    float4 v[PIECES];
    float squares = 0.0f;
    for (int base = 0;; base += turn) {
        for (int k = 0; k < PIECES; ++k) {
            int c = base + 4 * threadIdx.x + k * stride;
            v[k] = load4(from + c, own - c, aligned);
        }
        for (int k = 0; k < PIECES; ++k)
            squares += squares4(v[k]);
        if (base == last)
            break;
    }
    float scale = rsqrtf(row_sum(squares) / cols + eps);
    for (int base = last;; base -= turn) {  // backwards: the last turn is in registers still, the one before in caches
        for (int k = 0; k < PIECES; ++k) {
            int c = base + 4 * threadIdx.x + k * stride;
            if (base != last)
                v[k] = load4(from + c, own - c, aligned);
            store4(to + c, scaled(v[k], scale, load4(w + c, own - c, aligned)), own - c, aligned);
        }
        if (base == 0)
            break;
    }
    // END SOLUTION
}
