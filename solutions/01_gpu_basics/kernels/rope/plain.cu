// rope/plain: every pair (x[t, h, p, 0], x[t, h, p, 1]) turned by (n_past + t) * base^(-p / P); float32, one thread per
// pair.
//
// The first rung, and llama.cpp's own: a block of 512 threads for each row of P pairs, a head of a token. Heads have 64
// pairs, so that most of the threads return at once; and every head computes the angles of its token anew.
// Watch: instructions per pair; lanes at work.
//
// launch rope_plain<<<(T * H, (P + 511) / 512), (512), 0>>>(dst, x, H, P, n_past, base)

extern "C" __global__ void rope_plain(float *dst, const float *x, int H, int P, int n_past, float base)
{
    // BEGIN SOLUTION
    int row = blockIdx.x;  // t * H + h
    int p = blockIdx.y * blockDim.x + threadIdx.x;
    if (p < P) {
        float theta = (n_past + row / H) * powf(base, -(float)p / P);
        float sine = sinf(theta), cosine = cosf(theta);
        size_t i = 2 * ((size_t)row * P + p);
        float a = x[i], b = x[i + 1];
        dst[i] = a * cosine - b * sine;
        dst[i + 1] = a * sine + b * cosine;
    }
    // END SOLUTION
}
