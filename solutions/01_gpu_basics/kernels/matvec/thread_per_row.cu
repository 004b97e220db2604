// matvec/thread_per_row: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; one thread per row.
//
// The first rung, and yalm's: a thread goes along its row alone. The lanes of a warp read a whole row apart, and a
// model has only thousands of rows where a GPU has places for hundreds of thousands of threads.
// Watch: sectors per load request; warps per multiprocessor.
//
// launch matvec_thread_per_row<<<((M + 255) / 256), (256), 0>>>(y, W, x, M, K)

#include <cuda_fp16.h>

extern "C" __global__ void matvec_thread_per_row(float *y, const half *W, const float *x, int M, int K)
{
    // BEGIN SOLUTION
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k)
            sum += __half2float(W[(size_t)row * K + k]) * x[k];
        y[row] = sum;
    }
    // END SOLUTION
}
