// att_mix/shared_atomics: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d] in float32, a block per head.
//
// Against global_atomics: the pieces of a head are the warps of one block, at most 32, and their sums meet in shared
// memory. Nothing has to be zero before, and out is written once. Warp w takes the tokens w, w + warps ...
// Watch: no global atomics; but there are only H blocks.
//
// launch att_mix_shared_atomics<<<(H), (32, min(T, WARPS)), 0>>>(out, att, v, T, H, HKV, D)

constexpr int WARPS = 32;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
att_mix_shared_atomics(float *out, const float *att, const float *v, int T, int H, int HKV, int D)
{
    __shared__ float sums[32];  // of 32 neighboring d
    int h = blockIdx.x, g = h / (H / HKV), lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    if (warp == 0)
        sums[lane] = 0.0f;
    __syncthreads();  // all are zero before the first is added to
    for (int d = lane; d < D; d += 32) {
        float sum = 0.0f;
        // BEGIN SOLUTION
        for (int t = warp; t < T; t += warps)
            sum += att[(size_t)h * T + t] * v[((size_t)t * HKV + g) * D + d];
        atomicAdd(&sums[lane], sum);
        // END SOLUTION
        __syncthreads();  // each warp has added
        if (warp == 0) {
            out[h * D + d] = sums[lane];
            sums[lane] = 0.0f;
        }
        __syncthreads();  // zero again before the next is added
    }
}
