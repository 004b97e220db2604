// diag_mask/vectorized: dst[h, t, s] = -inf where s > n_past + t, else x[h, t, s]; float32, a thread for 4 scores of
// 8 rows.
//
// Against plain: 16 bytes per access, all 8 rows in flight at once, and a piece that is masked as a whole is not read.
// Watch: load requests; bytes read from device memory.
//
// launch diag_mask_vectorized<<<((H * T + 7) / 8, (S + 1023) / 1024), (256), 0>>>(dst, x, H * T, T, S, n_past)

constexpr int THREADS = 256;
constexpr int ROWS = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
diag_mask_vectorized(float *dst, const float *x, int R, int T, int S, int n_past)
{
    const float minus_infinity = -__int_as_float(0x7f800000);
    int row = blockIdx.x * ROWS;
    int rows = min(ROWS, R - row);
    size_t begin = (size_t)row * S;
    bool aligned = S % 4 == 0 && ((size_t)x | (size_t)dst) % 16 == 0;  // then every row starts on 16 bytes
    if (aligned) {
        // BEGIN SOLUTION
        int s = (blockIdx.y * THREADS + threadIdx.x) * 4;
        if (s < S) {
            float4 v[ROWS];
            int t = row % T, last[ROWS];  // the last score that each row may look at
            for (int r = 0; r < ROWS; ++r, t = t + 1 < T ? t + 1 : 0)
                last[r] = n_past + t;
            for (int r = 0; r < ROWS; ++r) {  // all loads first: none waits for another
                v[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (r < rows && s <= last[r])
                    v[r] = *(const float4 *)(x + begin + (size_t)r * S + s);
            }
            for (int r = 0; r < ROWS; ++r) {
                v[r].x = s > last[r] ? minus_infinity : v[r].x;
                v[r].y = s + 1 > last[r] ? minus_infinity : v[r].y;
                v[r].z = s + 2 > last[r] ? minus_infinity : v[r].z;
                v[r].w = s + 3 > last[r] ? minus_infinity : v[r].w;
                if (r < rows)
                    *(float4 *)(dst + begin + (size_t)r * S + s) = v[r];
            }
        }
        // END SOLUTION
    } else {
        int end = min(S, ((int)blockIdx.y + 1) * THREADS * 4);
        for (int s = blockIdx.y * THREADS * 4 + threadIdx.x; s < end; s += THREADS)
            for (int r = 0; r < rows; ++r) {
                size_t i = begin + (size_t)r * S + s;
                dst[i] = s > n_past + (row + r) % T ? minus_infinity : x[i];
            }
    }
}
