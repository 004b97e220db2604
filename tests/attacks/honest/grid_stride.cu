// family: unusual but right
// target: vector_add/grid
// tries:  a grid-stride loop with a template, a lambda, and shared memory that it does not need.
// ours:   pass
//
// launch add<<<(min((N + 63) / 64, 7)), (64), 0>>>(C, A, B, N)

template <typename Op> __device__ void each(size_t N, Op op)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < N; i += (size_t)gridDim.x * blockDim.x)
        op(i);
}

extern "C" __global__ void add(float *C, const float *A, const float *B, size_t N)
{
    __shared__ float kept[64];
    each(N, [&](size_t i) {
        kept[threadIdx.x] = A[i];
        C[i] = kept[threadIdx.x] + B[i];
    });
}
