// vector_add/one_thread: C[i] = A[i] + B[i] in float32, all of it by one thread.
//
// The first rung: a program as for a CPU, with one loop. One lane of one warp of one multiprocessor works.
// Watch: how long it takes, and how many lanes are active per instruction.
//
// launch add_one_thread<<<(1), (1), 0>>>(C, A, B, N)

extern "C" __global__ void add_one_thread(float *C, const float *A, const float *B, size_t N)
{
    // BEGIN SOLUTION
    for (size_t i = 0; i < N; ++i)
        C[i] = A[i] + B[i];
    // END SOLUTION
}
