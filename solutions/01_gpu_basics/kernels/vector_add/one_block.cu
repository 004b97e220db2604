// vector_add/one_block: C[i] = A[i] + B[i] in float32, by the 1024 threads of one block.
//
// Against one_thread: the threads take turns. Thread t takes element t, then t + 1024, and so on, so that the
// lanes of a warp always stand side by side. All of it still happens on one multiprocessor.
// Watch: active lanes per instruction; load requests fall 32-fold.
//
// launch add_one_block<<<(1), (1024), 0>>>(C, A, B, N)

extern "C" __global__ void add_one_block(float *C, const float *A, const float *B, size_t N)
{
    // BEGIN SOLUTION
    for (size_t i = threadIdx.x; i < N; i += blockDim.x)
        C[i] = A[i] + B[i];
    // END SOLUTION
}
