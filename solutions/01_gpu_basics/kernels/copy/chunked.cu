// copy/chunked: B[i] = A[offset + stride * i] in float32, 32 neighboring elements per thread.
//
// The first rung, divided up as one would on a CPU: every thread has a piece of its own and walks through it.
// Watch: sectors per global load request (l1tex__average_t_sectors_per_request_..._op_ld.ratio).
//
// launch copy_chunked<<<((N + 8191) / 8192), (256), 0>>>(B, A, N, offset, stride)

constexpr int CHUNK = 32;

extern "C" __global__ void copy_chunked(float *B, const float *A, size_t N, size_t offset, size_t stride)
{
    size_t first = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * CHUNK;
    // BEGIN SOLUTION
    for (size_t i = first; i < first + CHUNK && i < N; ++i)
        B[i] = A[offset + stride * i];
    // END SOLUTION
}
