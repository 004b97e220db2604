// Reads of shared, global and local memory that nothing has written; and reads that only seem to be such.

// wrong uninitialized accumulate_into_new<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void accumulate_into_new(float *y, const float *x)
{
    y[threadIdx.x] += x[threadIdx.x];  // BUG
}

// wrong uninitialized atomic_on_new<<<2, 32>>>(new f4 1, ramp f4 64)
extern "C" __global__ void atomic_on_new(float *sum, const float *x)
{
    atomicAdd(sum, x[blockIdx.x * 32 + threadIdx.x]);  // BUG
}

// wrong uninitialized workspace_half_filled<<<1, 64>>>(new f4 64, new f4 64, ramp f4 64)
extern "C" __global__ void workspace_half_filled(float *y, float *room, const float *x)
{
    int t = threadIdx.x;
    if (t % 2 == 0)
        room[t] = x[t];
    __syncthreads();
    y[t] = room[t];  // BUG
}

// wrong uninitialized counter_not_cleared<<<4, 32>>>(new f4 1, new f4 4, new i4 1, ramp f4 4)
extern "C" __global__ void counter_not_cleared(float *sum, float *part, int *done, const float *x)
{
    if (threadIdx.x)
        return;
    part[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    if (atomicAdd(done, 1) == gridDim.x - 1)  // BUG
        *sum = part[0] + part[1] + part[2] + part[3];
}

// wrong uninitialized reads_the_wrong_array<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void reads_the_wrong_array(float *y, const float *x)
{
    y[threadIdx.x] = 2.0f * y[31 - threadIdx.x] + 0.0f * x[threadIdx.x];  // BUG
}

// wrong uninitialized tile_border<<<1, (16, 16)>>>(new f4 16x16, ramp f4 10x10, 10)
extern "C" __global__ void tile_border(float *y, const float *x, int n)
{
    __shared__ float tile[16][16];
    int i = threadIdx.x, j = threadIdx.y;
    if (i < n && j < n)
        tile[j][i] = x[j * n + i];  // and zeros elsewhere?
    __syncthreads();
    y[j * 16 + i] = tile[j][i];  // BUG
}

// wrong uninitialized histogram_not_cleared<<<1, 64>>>(new i4 8, ramp i4 64)
extern "C" __global__ void histogram_not_cleared(int *y, const int *x)
{
    __shared__ int bins[8];
    atomicAdd(&bins[x[threadIdx.x] % 8], 1);  // BUG
    __syncthreads();
    if (threadIdx.x < 8)
        y[threadIdx.x] = bins[threadIdx.x];
}

// wrong uninitialized scan_identity_missing<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void scan_identity_missing(float *y, const float *x)
{
    __shared__ float s[65];
    s[threadIdx.x + 1] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];  // BUG
}

// wrong uninitialized local_not_cleared<<<1, 32>>>(new i4 32, ramp i4 32x8)
extern "C" __global__ void local_not_cleared(int *y, const int *x)
{
    int count[8];
    for (int k = 0; k < 8; ++k)
        count[x[threadIdx.x * 8 + k] % 8] += 1;  // BUG
    y[threadIdx.x] = count[x[threadIdx.x] % 8];
}

// wrong uninitialized local_half_filled<<<1, 32>>>(new i4 32, ramp i4 32)
extern "C" __global__ void local_half_filled(int *y, const int *x)
{
    volatile int q[8];
    for (int k = 0; k < 4; ++k)
        q[k] = x[threadIdx.x] + k;
    y[threadIdx.x] = q[x[threadIdx.x] % 8];  // BUG
}

// right written_then_added<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void written_then_added(float *y, const float *x)
{
    y[threadIdx.x] = 0.0f;
    y[threadIdx.x] += x[threadIdx.x];
}

// right beta_is_zero<<<1, 64>>>(new f4 64, ramp f4 64, 0)
extern "C" __global__ void beta_is_zero(float *y, const float *x, int beta)
{
    y[threadIdx.x] = x[threadIdx.x] + (beta ? beta * y[threadIdx.x] : 0.0f);
}

// right only_what_is_filled<<<1, 64>>>(new f4 32, new f4 64, ramp f4 64)
extern "C" __global__ void only_what_is_filled(float *y, float *room, const float *x)
{
    int t = threadIdx.x;
    if (t % 2 == 0)
        room[t] = x[t];
    __syncthreads();
    if (t < 32)
        y[t] = room[2 * t];
}

// right exchanged_in<<<1, 32>>>(new i4 32, new i4 32)
extern "C" __global__ void exchanged_in(int *y, int *box)
{
    atomicExch(&box[threadIdx.x], 7);  // what was there goes nowhere
    y[threadIdx.x] = box[threadIdx.x];
}

// right padded_tile<<<1, (16, 16)>>>(new f4 10x10, ramp f4 10x10, 10)
extern "C" __global__ void padded_tile(float *y, const float *x, int n)
{
    __shared__ float tile[16][17];  // the padding is never read
    int i = threadIdx.x, j = threadIdx.y;
    if (i < n && j < n)
        tile[j][i] = x[j * n + i];
    __syncthreads();
    if (i < n && j < n)
        y[j * n + i] = tile[i][j];
}

// right zero_filled_border<<<1, (16, 16)>>>(new f4 16x16, ramp f4 10x10, 10)
extern "C" __global__ void zero_filled_border(float *y, const float *x, int n)
{
    __shared__ float tile[16][16];
    int i = threadIdx.x, j = threadIdx.y;
    tile[j][i] = i < n && j < n ? x[j * n + i] : 0.0f;
    __syncthreads();
    y[j * 16 + i] = tile[i][j];
}

// right local_cleared<<<1, 32>>>(new i4 32, ramp i4 32x8)
extern "C" __global__ void local_cleared(int *y, const int *x)
{
    int count[8] = {};
    for (int k = 0; k < 8; ++k)
        count[x[threadIdx.x * 8 + k] % 8] += 1;
    y[threadIdx.x] = count[x[threadIdx.x] % 8];
}

// right bytes_then_word<<<1, 32>>>(new i4 32, new u1 128)
extern "C" __global__ void bytes_then_word(int *y, unsigned char *room)
{
    for (int k = 0; k < 4; ++k)
        room[4 * threadIdx.x + k] = threadIdx.x + k;
    y[threadIdx.x] = *(int *)&room[4 * threadIdx.x];
}
