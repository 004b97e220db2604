// out[h, d] = sum over t of att[h, t] * V[t, h, d]: what attention reads, mixed by its weights, float32.
// V: times x heads x 128. One thread per element of out, 32 of them in a block.

extern "C" __global__ void third(float *out, const float *att, const float *V, int heads, int times)
{
    int h = blockIdx.y, d = blockIdx.x * 32 + threadIdx.x;
    float total = 0;
    for (int t = 0; t < times; ++t)  // time after time, one after the other
        total += att[h * times + t] * V[((size_t)t * heads + h) * 128 + d];
    out[h * 128 + d] = total;
}
