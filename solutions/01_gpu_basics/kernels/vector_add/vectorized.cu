// vector_add/vectorized: C[i] = A[i] + B[i] in float32, four neighboring elements per thread.
//
// Against grid: a thread loads and stores 16 bytes with one instruction. The same bytes travel, asked for in a
// quarter of the requests, and each thread has twice 16 bytes in flight instead of twice 4.
// Watch: load requests fall, sectors per request rise; bytes in flight per thread.
//
// launch add_vectorized<<<((N + 1023) / 1024), (256), 0>>>(C, A, B, N)

extern "C" __global__ void add_vectorized(float *C, const float *A, const float *B, size_t N)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    bool aligned = ((size_t)A | (size_t)B | (size_t)C) % 16 == 0;  // a slice such as A[1:] is not
    // BEGIN SOLUTION
    if (aligned && i + 4 <= N) {
        float4 a = *(const float4 *)(A + i), b = *(const float4 *)(B + i);
        *(float4 *)(C + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else {
        for (size_t k = i; k < i + 4 && k < N; ++k)
            C[k] = A[k] + B[k];
    }
    // END SOLUTION
}
