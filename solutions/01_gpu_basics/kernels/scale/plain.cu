// scale/plain: dst[i] = factor * x[i] in float32, one thread per number, in blocks of 256.
//
// The first rung, and llama.cpp's own. A warp reads 128 bytes with each request, and has one in flight at a time.
// Watch: load requests, and the time against a plain copy.
//
// launch scale_plain<<<((N + 255) / 256), (256), 0>>>(dst, x, N, factor)

extern "C" __global__ void scale_plain(float *dst, const float *x, size_t N, float factor)
{
    // BEGIN SOLUTION
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        dst[i] = factor * x[i];
    // END SOLUTION
}
