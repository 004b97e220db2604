// Kernels that measure one thing each: how long a load takes, how much memory sends for so many bytes in flight, how
// many multiply-adds are done for so many in flight. LOADS, WIDTH and ILP are defined at compilation.

#ifndef LOADS
#define LOADS 1
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef ILP
#define ILP 1
#endif

__device__ unsigned long long nanoseconds()
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

extern "C" __global__ void chase(long long *took, const long long *from, int warm, int hops)
{
    // One thread; every word it reads is the address of the next. Volatile: the clocks stay around the loads.
    const long long *p = from;
    for (int i = 0; i < warm; ++i)
        asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(p));
    long long ns = nanoseconds(), cycles = clock64();
#pragma unroll 8
    for (int i = 0; i < hops; ++i)
        asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(p));
    took[2] = (long long)p;  // after the last load
    took[0] = clock64() - cycles;
    took[1] = nanoseconds() - ns;
}

extern "C" __global__ void chase_shared(long long *took, int hops)
{
    __shared__ unsigned ring[256];
    unsigned base = __cvta_generic_to_shared(ring);
    for (int i = 0; i < 256; ++i)
        ring[i] = base + 4 * ((i + 33) % 256);
    __syncthreads();
    unsigned p = base;
    long long ns = nanoseconds(), cycles = clock64();
#pragma unroll 8
    for (int i = 0; i < hops; ++i)
        asm volatile("ld.shared.u32 %0, [%0];" : "+r"(p));
    took[2] = p;
    took[0] = clock64() - cycles;
    took[1] = nanoseconds() - ns;
}

#if WIDTH == 16
using Word = float4;
__device__ float total(float4 v) { return v.x + v.y + v.z + v.w; }
#else
using Word = float;
__device__ float total(float v) { return v; }
#endif

extern "C" __global__ void read_in_flight(float *out, const Word *in, int turns)
{
    // LOADS loads per thread are started together and awaited together, again and again. The next turn's cannot
    // start earlier: a warp issues in order, and stops at the first sum that misses its number. (With 8 loads of
    // 16 bytes nvcc 13.0 puts the first sums after five of them, and a turn waits twice.)
    size_t threads = (size_t)gridDim.x * blockDim.x;
    const Word *p = in + (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn, p += LOADS * threads) {
        Word v[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
            v[j] = __ldcg(p + j * threads);
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
            sum += total(v[j]);
    }
    if (sum == 1.2345f)
        *out = sum;  // never with random data, and the compiler cannot know
}

extern "C" __global__ void fma_in_flight(float *out, const float *in, int turns)
{
    // ILP chains of multiply-adds per thread; |m| < 1 keeps the values finite. All chains share m and b: from two
    // chains on, an instruction finds them in the operand cache, where the one before it left them (.reuse in SASS).
    float a[ILP], m = in[threadIdx.x & 31] * 0.1f, b = in[(threadIdx.x + 1) & 31];
#pragma unroll
    for (int j = 0; j < ILP; ++j)
        a[j] = in[(threadIdx.x + j) & 31];
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn)
#pragma unroll
        for (int k = 0; k < 64; ++k)  // 64 multiply-adds, dealt out to the chains in turn
            a[k % ILP] = fmaf(a[k % ILP], m, b);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < ILP; ++j)
        sum += a[j];
    if (sum == 1.2345f)
        *out = sum;
}
