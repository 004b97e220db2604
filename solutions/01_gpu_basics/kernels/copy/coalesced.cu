// copy/coalesced: B[i] = A[offset + stride * i] in float32, one element per thread.
//
// Against chunked: neighboring threads take neighboring elements, so that the lanes of a warp stand side by
// side in memory and share sectors.
// Watch: sectors per request, of loads and stores.
//
// launch copy_coalesced<<<((N + 255) / 256), (256), 0>>>(B, A, N, offset, stride)

extern "C" __global__ void copy_coalesced(float *B, const float *A, size_t N, size_t offset, size_t stride)
{
    // BEGIN SOLUTION
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        B[i] = A[offset + stride * i];
    // END SOLUTION
}
