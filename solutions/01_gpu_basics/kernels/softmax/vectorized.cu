// softmax/vectorized: y[r, c] = exp(x[r, c] - max) / sum in float32, each row read once.
//
// Against online: a thread keeps its numbers of the row in registers, 4 pieces of 4, from the first use to the last.
// The block grows with the row, to 1024 threads; of short rows it takes several, a group of warps for each.
// A row that is too long for the registers takes several turns, and all but the last are read twice.
// Watch: global load sectors and requests fall.
//
// launch softmax_vectorized<<<((rows - 1) / TOGETHER + 1), (THREADS, TOGETHER), 0>>>(y, x, rows, cols)

#define THREADS min(1024, (cols + 511) / 512 * 32)  // per row: one for 16 numbers, in whole warps
#define TOGETHER max(1, 256 / THREADS)              // rows of a block

constexpr int PIECES = 4;                   // of 4 numbers, kept by a thread
constexpr float LOWEST = -3.402823466e38f;  // and not -inf: exp(-inf - -inf) is NaN

// 4 numbers from p on, of which the first `left` exist; -inf, which adds nothing, in place of the others.
__device__ __forceinline__ float4 load4(const float *p, int left, bool aligned)
{
    float none = -__int_as_float(0x7f800000);
    if (aligned && left >= 4)
        return *(const float4 *)p;
    return make_float4(left > 0 ? p[0] : none, left > 1 ? p[1] : none, left > 2 ? p[2] : none, left > 3 ? p[3] : none);
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

__device__ __forceinline__ float4 exp4(float4 v, float m)
{
    return make_float4(__expf(v.x - m), __expf(v.y - m), __expf(v.z - m), __expf(v.w - m));
}

__device__ __forceinline__ float max4(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
__device__ __forceinline__ float sum4(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ __forceinline__ float4 times(float4 v, float f) { return make_float4(v.x * f, v.y * f, v.z * f, v.w * f); }

// `op` over the values of a row's threads (threadIdx.y is the row in the block), in every one of them. Each use has
// slots of its own, by the type of `op`: nothing would order the stores of a second use after the loads of the first.
template <typename Op> __device__ __forceinline__ float over_row(float value, float neutral, Op op)
{
    __shared__ float slots[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int d = 16; d > 0; d /= 2)
        value = op(value, __shfl_xor_sync(0xffffffff, value, d));
    if (warps == 1)
        return value;
    if (lane == 0)
        slots[threadIdx.y * warps + threadIdx.x / 32] = value;
    __syncthreads();  // all warps' results are there
    value = lane < warps ? slots[threadIdx.y * warps + lane] : neutral;
    for (int d = 16; d > 0; d /= 2)
        value = op(value, __shfl_xor_sync(0xffffffff, value, d));
    return value;
}

extern "C" __global__ void __launch_bounds__(1024)
softmax_vectorized(float *y, const float *x, int rows, int cols)
{
    auto larger = [](float a, float b) { return fmaxf(a, b); };
    auto add = [](float a, float b) { return a + b; };
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    int own = row < rows ? cols : 0;  // numbers in this row; the last block may have rows too many, which wait along
    const float *from = x + (size_t)row * cols;
    float *to = y + (size_t)row * cols;
    bool aligned = cols % 4 == 0 && (size_t)x % 16 == 0 && (size_t)y % 16 == 0;
    int stride = 4 * blockDim.x, turn = PIECES * stride;  // numbers from one piece to the next; of all threads' pieces
    int last = (cols - 1) / turn * turn;                  // where the last turn begins
    // BEGIN SOLUTION
    float4 v[PIECES];
    float m = LOWEST, s = 0.0f;  // this thread's pair of largest and sum, as in online
    for (int base = 0;; base += turn) {
        for (int k = 0; k < PIECES; ++k) {
            int c = base + 4 * threadIdx.x + k * stride;
            v[k] = load4(from + c, own - c, aligned);
        }
        float before = m;
        for (int k = 0; k < PIECES; ++k)
            m = fmaxf(m, max4(v[k]));
        s *= __expf(before - m);
        for (int k = 0; k < PIECES; ++k)
            s += sum4(exp4(v[k], m));
        if (base == last)
            break;
    }
    float largest = over_row(m, LOWEST, larger);
    float factor = 1.0f / over_row(s * __expf(m - largest), 0.0f, add);
    for (int base = last;; base -= turn) {  // backwards: the last turn is in registers still, the one before in caches
        for (int k = 0; k < PIECES; ++k) {
            int c = base + 4 * threadIdx.x + k * stride;
            if (base != last)
                v[k] = load4(from + c, own - c, aligned);
            store4(to + c, times(exp4(v[k], largest), factor), own - c, aligned);
        }
        if (base == 0)
            break;
    }
    // END SOLUTION
}
