// transpose/naive: B[j, i] = A[i, j] in float32, one thread per element.
//
// The first rung. threadIdx.x walks along a row of A, so that reads are coalesced; then the writes walk down a
// column of B.
// Watch: sectors per store request.
//
// launch transpose_naive<<<((N + 31) / 32, (M + 7) / 8), (32, 8), 0>>>(B, A, M, N)

extern "C" __global__ void transpose_naive(float *B, const float *A, int M, int N)
{
    // BEGIN SOLUTION
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N)
        B[(size_t)col * M + row] = A[(size_t)row * N + col];
    // END SOLUTION
}
