// att_mix/warp_per_output: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d] in float32, a warp per number.
//
// The first rung, yalm's first: H * D blocks of one warp. Lane n takes the tokens n, n + 32 ..., and shuffles add up
// what the lanes have. Neighboring lanes read neighboring tokens, and those lie HKV * D numbers apart.
// Watch: sectors per load request.
//
// launch att_mix_warp_per_output<<<(H, D), (32), 0>>>(out, att, v, T, H, HKV, D)

extern "C" __global__ void att_mix_warp_per_output(float *out, const float *att, const float *v, int T, int H, int HKV,
                                                   int D)
{
    int h = blockIdx.x, d = blockIdx.y, lane = threadIdx.x, g = h / (H / HKV);
    float sum = 0.0f;
    // BEGIN SOLUTION
    for (int t = lane; t < T; t += 32)
        sum += att[(size_t)h * T + t] * v[((size_t)t * HKV + g) * D + d];
    for (int far = 16; far > 0; far /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, far);
    // END SOLUTION
    if (lane == 0)
        out[h * D + d] = sum;
}
