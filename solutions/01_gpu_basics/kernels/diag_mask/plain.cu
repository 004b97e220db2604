// diag_mask/plain: dst[h, t, s] = -inf where s > n_past + t, else x[h, t, s]; float32, one thread per score.
//
// The first rung, and llama.cpp's own but for the infinity: blocks lie along a row, and the grid's x counts rows.
// Watch: load requests; scores are read that nobody needs.
//
// launch diag_mask_plain<<<(H * T, (S + 255) / 256), (256), 0>>>(dst, x, T, S, n_past)

extern "C" __global__ void diag_mask_plain(float *dst, const float *x, int T, int S, int n_past)
{
    // BEGIN SOLUTION
    int row = blockIdx.x;  // of all heads
    int s = blockIdx.y * blockDim.x + threadIdx.x;
    if (s < S) {
        size_t i = (size_t)row * S + s;
        float value = x[i];
        dst[i] = s > n_past + row % T ? -__int_as_float(0x7f800000) : value;
    }
    // END SOLUTION
}
