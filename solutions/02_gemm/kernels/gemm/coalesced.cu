// gemm/coalesced: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per element of C.
//
// Against naive: threadIdx.x walks along a row of C. Neighbors in a warp now read neighbors in B,
// and share their row of A, so that far fewer sectors serve the same request.
// Watch: sectors per global load request, and sectors per store request with it.
//
// launch gemm_coalesced<<<((N + 15) / 16, (M + 15) / 16), (16, 16), 0>>>(C, A, B, M, N, K)

extern "C" __global__ void gemm_coalesced(float *C, const float *A, const float *B, int M, int N, int K)
{
    // BEGIN SOLUTION
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k)
            acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
        C[(size_t)row * N + col] = acc;
    }
    // END SOLUTION
}
