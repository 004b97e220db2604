// vector_add/grid_stride: C[i] = A[i] + B[i] in float32, by a grid of fixed size that goes over everything.
//
// Against grid: the number of threads no longer depends on N. Each takes an element, then the one that lies as
// far on as there are threads in the grid, and so on: one launch serves any length.
// Watch: instructions per element; the time hardly moves.
//
// launch add_grid_stride<<<(min((N + 1023) / 1024, 1056)), (256), 0>>>(C, A, B, N)
// (1056 blocks: 8 for each of 132 multiprocessors, as many as are resident at once on an H200; fewer for a
// short vector, so that every thread has about 4 elements)

extern "C" __global__ void add_grid_stride(float *C, const float *A, const float *B, size_t N)
{
    // BEGIN SOLUTION
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = first; i < N; i += (size_t)gridDim.x * blockDim.x)
        C[i] = A[i] + B[i];
    // END SOLUTION
}
