// copy/unrolled: B[i] = A[offset + stride * i] in float32, four times four elements per thread.
//
// Against vectorized: a thread starts four loads before it stores anything. None of them waits for another, so
// that four times as many bytes are under way from as many threads. Caches are told that nothing is used again.
// Watch: registers per thread; the time, where threads alone do not put enough bytes in flight.
//
// launch copy_unrolled<<<((N + 4095) / 4096), (256), 0>>>(B, A, N, offset, stride)

constexpr int THREADS = 256;
constexpr int LOADS = 4;
constexpr int BLOCK = LOADS * 4 * THREADS;  // elements per block

extern "C" __global__ void copy_unrolled(float *B, const float *A, size_t N, size_t offset, size_t stride)
{
    size_t first = (size_t)blockIdx.x * BLOCK;
    bool wide = stride == 1 && ((size_t)(A + offset) | (size_t)B) % 16 == 0;
    if (wide && first + BLOCK <= N) {
        // BEGIN SOLUTION
        const float4 *from = (const float4 *)(A + offset + first) + threadIdx.x;
        float4 *to = (float4 *)(B + first) + threadIdx.x;
        float4 v[LOADS];
        for (int k = 0; k < LOADS; ++k)  // the block's threads stand side by side in each access
            v[k] = __ldcs(from + k * THREADS);
        for (int k = 0; k < LOADS; ++k)
            __stcs(to + k * THREADS, v[k]);
        // END SOLUTION
    } else {
        for (size_t i = first + threadIdx.x; i < first + BLOCK && i < N; i += THREADS)
            B[i] = A[offset + stride * i];
    }
}
