// Strays: past an end, before a start, into another array, off an alignment; and accesses that only look like it.

// wrong out_of_bounds no_guard<<<2, 64>>>(zeros f4 100, ramp f4 128)
extern "C" __global__ void no_guard(float *y, const float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];  // BUG
}

// wrong out_of_bounds guard_off_by_one<<<2, 64>>>(zeros f4 100, ramp f4 100, 100)
extern "C" __global__ void guard_off_by_one(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        y[i] = x[i] + 1.0f;  // BUG
}

// wrong out_of_bounds left_neighbor<<<1, 32>>>(zeros f4 32, ramp f4 32)
extern "C" __global__ void left_neighbor(float *y, const float *x)
{
    int i = threadIdx.x;
    y[i] = x[i] - x[i - 1];  // BUG
}

// wrong out_of_bounds wrong_pitch<<<(2, 2), (8, 8)>>>(zeros f4 12x10, 12, 10)
extern "C" __global__ void wrong_pitch(float *c, int rows, int cols)
{
    int col = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < rows && col < cols)
        c[row * rows + col] = 1.0f;  // BUG
}

// wrong out_of_bounds atomic_past_bins<<<1, 64>>>(zeros i4 10, ramp i4 64)
extern "C" __global__ void atomic_past_bins(int *bins, const int *x)
{
    atomicAdd(&bins[x[threadIdx.x] / 6], 1);  // BUG
}

// wrong out_of_bounds vector_tail<<<1, 8>>>(zeros f4 32, ramp f4 30)
extern "C" __global__ void vector_tail(float4 *y, const float4 *x)
{
    y[threadIdx.x] = x[threadIdx.x];  // BUG
}

// wrong out_of_bounds shared_halo<<<1, 32>>>(zeros f4 32, ramp f4 32)
extern "C" __global__ void shared_halo(float *y, const float *x)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[t] + s[t + 1];  // BUG
}

// wrong out_of_bounds too_little_dynamic<<<1, 64, 128>>>(zeros f4 64, ramp f4 64)
extern "C" __global__ void too_little_dynamic(float *y, const float *x)
{
    extern __shared__ float d[];
    d[threadIdx.x] = x[threadIdx.x];  // BUG
    __syncthreads();
    y[threadIdx.x] = d[63 - threadIdx.x];
}

// wrong out_of_bounds negative_gather<<<1, 32>>>(zeros f4 32, ramp f4 32, ramp i4 32)
extern "C" __global__ void negative_gather(float *y, const float *x, const int *where)
{
    y[threadIdx.x] = x[where[threadIdx.x] - 4];  // BUG
}

// wrong out_of_bounds bytes_for_elements<<<1, 32>>>(zeros f4 32, ramp f4 32)
extern "C" __global__ void bytes_for_elements(float *y, const float *x)
{
    y[threadIdx.x] = x[threadIdx.x * sizeof(float)];  // BUG
}

// wrong out_of_bounds through_a_neighbor<<<1, 32>>>(zeros f4 32, ramp f4 32, 17179869184L)
extern "C" __global__ void through_a_neighbor(float *y, const float *x, long long away)
{
    y[threadIdx.x + away] = x[threadIdx.x];  // BUG
}

// wrong misaligned float4_at_one<<<1, 8>>>(zeros f4 32, ramp f4 40)
extern "C" __global__ void float4_at_one(float4 *y, const float *x)
{
    y[threadIdx.x] = *(const float4 *)(x + 4 * threadIdx.x + 1);  // BUG
}

// wrong misaligned odd_rows<<<1, 8>>>(zeros f4 8x7, 7)
extern "C" __global__ void odd_rows(float *c, int cols)
{
    *(float2 *)&c[threadIdx.x * cols] = make_float2(1.0f, 2.0f);  // BUG
}

// wrong misaligned shared_vector<<<1, 8>>>(zeros f4 32)
extern "C" __global__ void shared_vector(float4 *y)
{
    __shared__ float s[8][5];
    for (int k = 0; k < 5; ++k)
        s[threadIdx.x][k] = k;
    __syncthreads();
    y[threadIdx.x] = *(float4 *)&s[threadIdx.x][0];  // BUG
}

// wrong misaligned int_from_bytes<<<1, 8>>>(zeros i4 8, ramp u1 40)
extern "C" __global__ void int_from_bytes(int *y, const unsigned char *x)
{
    y[threadIdx.x] = *(const int *)(x + 5 * threadIdx.x);  // BUG
}

// right guarded<<<2, 64>>>(new f4 100, ramp f4 100, 100)
extern "C" __global__ void guarded(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i];
}

// right clamped<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void clamped(float *y, const float *x)
{
    int i = threadIdx.x;
    y[i] = x[max(i - 3, 0)] + x[min(i + 3, 63)];
}

// right idle_threads_hold_wild_pointers<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void idle_threads_hold_wild_pointers(float *y, const float *x)
{
    const float *p = x + (long long)threadIdx.x * 1000003;
    y[threadIdx.x] = threadIdx.x == 0 ? *p : 0.0f;
}

// right end_pointer<<<1, 1>>>(new f4 1, ramp f4 16)
extern "C" __global__ void end_pointer(float *y, const float *x)
{
    float sum = 0.0f;
    for (const float *p = x + 15; p >= x; --p)  // steps before the array, reads nothing there
        sum += *p;
    *y = sum;
}

// right vector_with_tail<<<1, 8>>>(new f4 30, ramp f4 30, 30)
extern "C" __global__ void vector_with_tail(float *y, const float *x, int n)
{
    int i = 4 * threadIdx.x;
    if (i + 4 <= n)
        *(float4 *)(y + i) = *(const float4 *)(x + i);
    else
        for (; i < n; ++i)
            y[i] = x[i];
}

// right either_array<<<1, 64>>>(new f4 64, ramp f4 32, ramp f4 64)
extern "C" __global__ void either_array(float *y, const float *a, const float *b)
{
    const float *p = threadIdx.x < 32 ? a : b;
    y[threadIdx.x] = p[threadIdx.x];
}

// right by_distance<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void by_distance(float *y, const float *x)
{
    long long apart = y - x;  // the pointer to y, made of x and a distance
    const float *also_y = x + apart;
    y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] += also_y[threadIdx.x];
}

// right short_circuit<<<1, 64>>>(new f4 64, ramp f4 40, 40)
extern "C" __global__ void short_circuit(float *y, const float *x, int n)
{
    int i = threadIdx.x;
    y[i] = i + 1 < n && x[i + 1] > x[i] ? 1.0f : 0.0f;
}
