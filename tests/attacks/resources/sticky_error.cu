// family: sticky CUDA error
// target: vector_add/grid
// tries:  reads where nothing is, after which no call of CUDA works in the process, whoever makes it.
// naive:  one context
// gains:  gpu stops
// ours:   fail address|outside
//
// launch add<<<((N + 255) / 256), (256), 0>>>(C, A, B, N)

extern "C" __global__ void add(float *C, const float *A, const float *B, size_t N)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        C[i] = A[i] + B[i] + *(const volatile float *)(size_t)(4096 + 4 * i);
}
