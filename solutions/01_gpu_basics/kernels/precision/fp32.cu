// precision/fp32: y[i] = max(x[i], 0) in float32, one number per thread.
//
// The first rung, the lecture's ReLU: one operation per number, and 8 bytes moved for it.
// Watch: sectors per request (l1tex__average_t_sectors_per_request_..._op_ld.ratio).
//
// launch precision_fp32<<<((N + 255) / 256), (256), 0>>>(y, x, N)

extern "C" __global__ void precision_fp32(float *y, const float *x, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N)
        y[i] = fmaxf(x[i], 0.0f);
    // END SOLUTION
}
