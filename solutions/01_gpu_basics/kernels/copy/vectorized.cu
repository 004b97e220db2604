// copy/vectorized: B[i] = A[offset + stride * i] in float32, four neighboring elements per thread.
//
// Against unrolled: a thread moves 16 bytes with one load and one store. That needs addresses that 16 divides; a
// copy with a stride, an odd offset or an end in the middle of a block goes element by element.
// Watch: load requests fall, sectors per request rise: the same bytes, asked for less often.
//
// launch copy_vectorized<<<((N + 1023) / 1024), (256), 0>>>(B, A, N, offset, stride)

constexpr int THREADS = 256;
constexpr int BLOCK = 4 * THREADS;  // elements per block

extern "C" __global__ void copy_vectorized(float *B, const float *A, size_t N, size_t offset, size_t stride)
{
    size_t first = (size_t)blockIdx.x * BLOCK;
    bool wide = stride == 1 && ((size_t)(A + offset) | (size_t)B) % 16 == 0;
    if (wide && first + BLOCK <= N) {
        // BEGIN SOLUTION
        size_t i = first + 4 * threadIdx.x;
        *(float4 *)(B + i) = *(const float4 *)(A + offset + i);
        // END SOLUTION
    } else {
        for (size_t i = first + threadIdx.x; i < first + BLOCK && i < N; i += THREADS)
            B[i] = A[offset + stride * i];
    }
}
