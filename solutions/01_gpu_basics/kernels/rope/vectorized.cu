// rope/vectorized: every pair (x[t, h, p, 0], x[t, h, p, 1]) turned by (n_past + t) * base^(-p / P); float32, a thread
// for 2 pairs of 4 heads.
//
// Against plain: 16 bytes per access, 4 heads in flight at once, and blocks full of threads with work. The angle is
// the same for all heads of a token: one sine and one cosine serve 4 of them.
// Watch: instructions per pair; load requests.
//
// launch rope_vectorized<<<((T * ((H + 3) / 4) * ((P + 1) / 2) + 255) / 256), (256)>>>(dst, x, T, H, P, n_past, base)

constexpr int THREADS = 256;
constexpr int HEADS = 4;

__device__ float4 turn(float4 v, float4 by)  // by: cosine and sine of the first pair, of the second
{
    return make_float4(v.x * by.x - v.y * by.y, v.x * by.y + v.y * by.x,
                       v.z * by.z - v.w * by.w, v.z * by.w + v.w * by.z);
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope_vectorized(float *dst, const float *x, int T, int H, int P, int n_past, float base)
{
    unsigned twos = (P + 1) / 2, groups = (H + HEADS - 1) / HEADS;
    unsigned i = blockIdx.x * THREADS + threadIdx.x;  // counts twos of pairs, then groups of heads, then tokens
    unsigned p = i % twos * 2, h = i / twos % groups * HEADS, t = i / twos / groups;
    if (t >= T)
        return;
    bool two = p + 1 < P;
    int heads = min(HEADS, H - h);
    size_t begin = 2 * (((size_t)t * H + h) * P + p);
    bool aligned = P % 2 == 0 && ((size_t)x | (size_t)dst) % 16 == 0;  // then every two of pairs starts on 16 bytes
    // BEGIN SOLUTION
    float first = (n_past + t) * powf(base, -(float)p / P);
    float second = (n_past + t) * powf(base, -(float)(p + 1) / P);
    float4 by;
    sincosf(first, &by.y, &by.x);
    sincosf(second, &by.w, &by.z);
    float4 v[HEADS];
    for (int k = 0; k < HEADS; ++k) {
        const float *from = x + begin + (size_t)k * P * 2;
        if (k < heads)
            v[k] = aligned ? *(const float4 *)from
                           : make_float4(from[0], from[1], two ? from[2] : 0.0f, two ? from[3] : 0.0f);
    }
    for (int k = 0; k < HEADS; ++k) {
        float *to = dst + begin + (size_t)k * P * 2;
        float4 turned = turn(v[k], by);
        if (k < heads && aligned) {
            *(float4 *)to = turned;
        } else if (k < heads) {
            to[0] = turned.x, to[1] = turned.y;
            if (two)
                to[2] = turned.z, to[3] = turned.w;
        }
    }
    // END SOLUTION
}
