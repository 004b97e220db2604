// vector_add/grid: C[i] = A[i] + B[i] in float32, one thread per element.
//
// Against one_block: as many blocks as it takes, spread over all multiprocessors. A thread finds its element
// from the place of its block and its own place in that. The last block may reach past the end.
// Watch: multiprocessors at work, and so the time; requests and sectors stay.
//
// launch add_grid<<<((N + 255) / 256), (256), 0>>>(C, A, B, N)

extern "C" __global__ void add_grid(float *C, const float *A, const float *B, size_t N)
{
    // BEGIN SOLUTION
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        C[i] = A[i] + B[i];
    // END SOLUTION
}
