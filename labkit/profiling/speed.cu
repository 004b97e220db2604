// Kernels whose limit is known from how they are made, and kernels that measure one latency each (labkit speed).
// Every kernel that computes stores something that depends on all of its work, so that no compiler drops it.

#define I (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)

extern "C" {

// --- device memory and L2: `times` passes over n elements ---

__global__ void copy4(float4 *out, const float4 *in, int n)
{
    for (int i = I; i < n; i += ALL)
        out[i] = in[i];
}

__global__ void triad(float *out, const float *a, const float *b, int n)
{
    for (int i = I; i < n; i += ALL)
        out[i] = fmaf(3.0f, b[i], a[i]);
}

__global__ void fill4(float4 *out, float value, int n)
{
    for (int i = I; i < n; i += ALL)
        out[i] = make_float4(value, value, value, value);
}

__global__ void refill4(float4 *out, float value, int n, int times)
{
    for (int t = 0; t < times; ++t)
        for (int i = I; i < n; i += ALL)
            out[i] = make_float4(value + t, value, value, value);
}

__global__ void sum4(float *out, const float4 *in, int n, int times)
{
    float4 sum = make_float4(0, 0, 0, 0);
    for (int t = 0; t < times; ++t)
#pragma unroll 8
        for (int i = I; i < n; i += ALL) {
            float4 v = __ldcg(in + i);  // not from L1
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
    if (sum.x + sum.y + sum.z + sum.w == 1.25e30f)
        out[0] = 1;
}

__global__ void every(float *out, const float *in, int stride, int n)
{
    float sum = 0;
#pragma unroll 8
    for (int i = I; i < n; i += ALL)
        sum += in[(size_t)i * stride];
    if (sum == 1.25e30f)
        out[0] = 1;
}

// --- L1: a small array that stays there ---

__global__ void lines(float *out, const float *in, int times)
{
    // Each lane its own 128-byte line of 16 KB, and another one the next time.
    float sum = 0;
    int at = threadIdx.x * 32 & 4095;
#pragma unroll 8
    for (int t = 0; t < times; ++t)
        sum += in[at + (t & 31)];
    if (sum == 1.25e30f)
        out[I] = sum;
}

__global__ void quads_in_l1(float4 *out, const float4 *in, int times)
{
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int t = 0; t < times; ++t) {
        float4 v = in[threadIdx.x % 32 + t % 32 * 32];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    if (sum.x + sum.y + sum.z + sum.w == 1.25e30f)
        out[I] = sum;
}

// --- shared memory ---

__global__ void banks(float *out, int stride, int times)
{
    __shared__ float tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        tile[i] = i;
    __syncthreads();
    float sum = 0;
    int at = threadIdx.x * stride;
#pragma unroll 8
    for (int t = 0; t < times; ++t)
        sum += tile[at + t & 1023];
    if (sum == 1.25e30f)
        out[I] = sum;
}

__global__ void quads_in_shared(float *out, int times)
{
    __shared__ float4 tile[512];
    for (int i = threadIdx.x; i < 512; i += blockDim.x)
        tile[i] = make_float4(i, i + 1, i + 2, i + 3);
    __syncthreads();
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int t = 0; t < times; ++t) {
        float4 v = tile[threadIdx.x + t & 511];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    if (sum.x + sum.y + sum.z + sum.w == 1.25e30f)
        out[I] = sum.x;
}

__global__ void shared_stores(float *out, int times)
{
    __shared__ float4 tile[1024];
    float v = threadIdx.x;
#pragma unroll 8
    for (int t = 0; t < times; ++t)
        tile[threadIdx.x + 32 * t & 1023] = make_float4(v, v + t, v, v);
    __syncthreads();
    out[I] = tile[threadIdx.x * 7 & 1023].y;
}

// --- arithmetic ---

__global__ void multiply_add(float *out, float a, int times)
{
    float v[8];
    for (int k = 0; k < 8; ++k)
        v[k] = threadIdx.x + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 8; ++k)
            v[k] = fmaf(v[k], a, 1.0f);
    out[I] = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
}

__global__ void polynomial(float *out, const float *in, int times)
{
    float x[4], y[4];
    for (int k = 0; k < 4; ++k)
        x[k] = in[threadIdx.x] + k, y[k] = k;
#pragma unroll 8
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            y[k] = fmaf(y[k], x[k], 0.5f);
    out[I] = y[0] + y[1] + y[2] + y[3];
}

__global__ void mixed(float *out, float a, int times)
{
    // Two integer operations to three multiply-adds: neither pipe is full, and every slot is.
    float v[4];
    unsigned w[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k, w[k] = threadIdx.x * 7 + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k) {
            v[k] = fmaf(v[k], a, 1.0f);
            w[k] = (w[k] ^ times) + 0x9e3779b9u;
            v[k] = fmaf(v[k], a, 2.0f);
            v[k] = fmaf(v[k], a, 3.0f);
        }
    out[I] = v[0] + v[1] + v[2] + v[3] + (w[0] ^ w[1] ^ w[2] ^ w[3]);
}

__global__ void many_ways(float *out, float a, int times)
{
    // Every lane of a warp its own way: the warp goes all of them, one after the other.
    float v = threadIdx.x, w = v + 1, x = v + 2, y = v + 3;
    for (int t = 0; t < times; ++t)
        switch (threadIdx.x & 7) {
#define WAY(n) case n: for (int k = 0; k < 16; ++k) { v = fmaf(v, a, n); w = fmaf(w, a, n + .5f); \
                       x = fmaf(x, a, n + 1.5f); y = fmaf(y, a, n + 2.5f); } __syncwarp(1u << threadIdx.x % 32); break;
            WAY(0) WAY(1) WAY(2) WAY(3) WAY(4) WAY(5) WAY(6) WAY(7)
        }
    out[I] = v + w + x + y;
}

__global__ void exponentials(float *out, int times)
{
    float v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x * 1e-3f + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(v[k]));
    out[I] = v[0] + v[1] + v[2] + v[3];
}

__global__ void roots(float *out, int times)
{
    float v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k + 1;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(v[k]));
    out[I] = v[0] + v[1] + v[2] + v[3];
}

__global__ void doubles_fma(double *out, double a, int times)
{
    double v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            v[k] = fma(v[k], a, 1.0);
    out[I] = v[0] + v[1] + v[2] + v[3];
}

__global__ void doubles_add(double *out, double a, int times)
{
    double v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            v[k] = v[k] + a;
    out[I] = v[0] + v[1] + v[2] + v[3];
}

__global__ void logic(unsigned *out, unsigned a, int times)
{
    unsigned v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            v[k] = (v[k] << 7 | v[k] >> 25) ^ a;
    out[I] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

__global__ void largest_of(int *out, int a, int times)
{
    int v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x * 77 + k;
#pragma unroll 4
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            v[k] = max(v[k] ^ t, a - k);
    out[I] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

// c += a * b: 16 x 8 by 16, float16, summed in float32.
#define MMA(c, a, b)                                                                                       \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}," \
                 " {%0,%1,%2,%3};"                                                                          \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

__global__ void tensor(float *out, const int *in, int times)
{
    int a[4], b[2] = {in[threadIdx.x], in[threadIdx.x + 32]};
    float c[8][4] = {};
    for (int k = 0; k < 4; ++k)
        a[k] = in[threadIdx.x + 64 + 32 * k];
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 8; ++k)
            MMA(c[k], a, b);
    float sum = 0;
    for (int k = 0; k < 8; ++k)
        sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    out[I] = sum;
}

// --- waiting ---

__global__ void chase(unsigned *out, const unsigned *next, int times)
{
    // Warps that each follow one thread's list.
    unsigned at = I / 32 * 1021;
    for (int t = 0; t < times; ++t)
        at = next[at];
    out[I] = at;
}

__global__ void one_chain(float *out, float a, int times)
{
    float v = threadIdx.x;
#pragma unroll 16
    for (int t = 0; t < times; ++t)
        v = fmaf(v, a, 1.0f);
    out[I] = v;
}

__global__ void root_chain(float *out, int times)
{
    float v = threadIdx.x + 2;
#pragma unroll 16
    for (int t = 0; t < times; ++t)
        asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(v));
    out[I] = v;
}

__global__ void meetings(float *out, int times)
{
    __shared__ float word[64];
    float v = threadIdx.x;
    for (int t = 0; t < times; ++t) {
        word[threadIdx.x] = v;
        __syncthreads();
        v = word[threadIdx.x ^ 33] + 1;
        __syncthreads();
    }
    out[I] = v;
}

__global__ void small_trees(float *out, const float *in, int times)
{
    // A sum over the block, again and again: half of the threads, a barrier, a quarter, a barrier ...
    __shared__ float part[256];
    float v = in[threadIdx.x];
    for (int t = 0; t < times; ++t) {
        part[threadIdx.x] = v;
        __syncthreads();
        for (int d = 128; d; d /= 2) {
            if (threadIdx.x < d)
                part[threadIdx.x] += part[threadIdx.x + d];
            __syncthreads();
        }
        v = part[0] * 1e-3f + threadIdx.x;
        __syncthreads();
    }
    out[I] = v;
}

// --- uneven work ---

__global__ void one_long(float *out, float a, int times, int many)
{
    float v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k;
    if (blockIdx.x == 0)
        times *= many;
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            v[k] = fmaf(v[k], a, 1.0f);
    out[I] = v[0] + v[1] + v[2] + v[3];
}

__global__ void triangle(float *out, float a, int times)
{
    float v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = threadIdx.x + k;
    // The last blocks do most: cubic, so that half of the time few are left.
    float share = (blockIdx.x + 1.0f) / gridDim.x;
    times = times * share * share * share;
    for (int t = 0; t < times; ++t)
        for (int k = 0; k < 4; ++k)
            v[k] = fmaf(v[k], a, 1.0f);
    out[I] = v[0] + v[1] + v[2] + v[3];
}

// --- one latency each: cycles per step in out[0], and what keeps the work alive behind it ---

#define CLOCKED(before, step, after)                   \
    before;                                            \
    long long start = clock64();                       \
    for (int t = 0; t < times; ++t) {                  \
        step;                                          \
    }                                                  \
    long long end = clock64();                         \
    after;                                             \
    if (threadIdx.x == 0)                              \
        out[0] = (float)(end - start) / times;

__global__ void latency_of_global(float *out, const unsigned *next, int times)
{
    unsigned at = 0;
    for (int t = 0; t < times; ++t)  // once around first: what can stay in a cache is there
        at = next[at];
    CLOCKED(, at = next[at], out[1 + threadIdx.x] = at)
}

__global__ void latency_of_first_touch(float *out, const unsigned *next, int times)
{
    unsigned at = 0;
    CLOCKED(, at = next[at], out[1 + threadIdx.x] = at)
}

__global__ void latency_of_shared(float *out, int times)
{
    __shared__ unsigned next[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        next[i] = (i + 33) & 1023;
    __syncthreads();
    CLOCKED(unsigned at = threadIdx.x, at = next[at], out[1 + threadIdx.x] = at)
}

__global__ void latency_of_fma(float *out, float a, int times)
{
    CLOCKED(float v = 1, _Pragma("unroll") for (int k = 0; k < 32; ++k) v = fmaf(v, a, 1.0f), out[1 + threadIdx.x] = v)
}

__global__ void latency_of_integer(float *out, unsigned a, int times)
{
    CLOCKED(unsigned v = 1, _Pragma("unroll") for (int k = 0; k < 32; ++k) v = max(v ^ a, 5u), out[1 + threadIdx.x] = v)
}

__global__ void latency_of_root(float *out, int times)
{
    CLOCKED(float v = 3, _Pragma("unroll") for (int k = 0; k < 32; ++k)
            asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(v)), out[1 + threadIdx.x] = v)
}

__global__ void latency_of_double(float *out, double a, int times)
{
    CLOCKED(double v = 1, _Pragma("unroll") for (int k = 0; k < 32; ++k) v = fma(v, a, 1.0), out[1 + threadIdx.x] = v)
}

__global__ void latency_of_shuffle(float *out, int times)
{
    CLOCKED(float v = threadIdx.x, _Pragma("unroll") for (int k = 0; k < 32; ++k)
            v = __shfl_xor_sync(0xffffffff, v, 5), out[1 + threadIdx.x] = v)
}

__global__ void latency_of_barrier(float *out, int times)
{
    CLOCKED(, _Pragma("unroll") for (int k = 0; k < 32; ++k) __syncthreads(), out[1 + threadIdx.x] = 0)
}

__global__ void latency_of_tensor(float *out, const int *in, int times)
{
    int a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
    float c[4] = {};
    CLOCKED(, _Pragma("unroll") for (int k = 0; k < 32; ++k) MMA(c, a, b), out[1 + threadIdx.x] = c[0])
}

__global__ void latency_of_atomic(float *out, unsigned *word, int times)
{
    CLOCKED(unsigned v = 0, v = atomicAdd(word, v & 1), out[1 + threadIdx.x] = v)
}

__global__ void nothing(float *out)
{
}
}
