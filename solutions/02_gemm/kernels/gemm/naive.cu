// gemm/naive: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per element of C.
//
// The first rung. threadIdx.x walks down the rows of C, as a mathematician would number them, so the
// neighbors in a warp read A one whole row apart, and little of what memory sends is used.
// Watch: sectors per global load request (l1tex__average_t_sectors_per_request_..._op_ld.ratio).
//
// launch gemm_naive<<<((M + 15) / 16, (N + 15) / 16), (16, 16), 0>>>(C, A, B, M, N, K)

extern "C" __global__ void gemm_naive(float *C, const float *A, const float *B, int M, int N, int K)
{
    // BEGIN SOLUTION
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k)
            acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
        C[(size_t)row * N + col] = acc;
    }
    // END SOLUTION
}
