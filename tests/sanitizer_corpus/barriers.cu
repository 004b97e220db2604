// Barriers that part of a block misses, loops that never end; and uneven code that is right.

// wrong barrier in_a_branch<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void in_a_branch(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < 40) {
        s[t] = x[t];
        __syncthreads();  // BUG
    }
    y[t] = t < 40 ? s[39 - t] : 0.0f;
}

// wrong barrier after_return<<<2, 64>>>(new f4 100, ramp f4 100, 100)
extern "C" __global__ void after_return(float *y, const float *x, int n)
{
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n)
        return;
    s[threadIdx.x] = x[i];
    __syncthreads();  // BUG
    y[i] = s[threadIdx.x];
}

// wrong barrier uneven_loop<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void uneven_loop(float *y, const float *x)
{
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = 0; k < 2 + (threadIdx.x >= 32); ++k) {
        s[threadIdx.x] = x[threadIdx.x] + k;
        __syncthreads();  // BUG
        sum += s[threadIdx.x];
    }
    y[threadIdx.x] = sum;
}

// wrong barrier one_in_each_branch<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void one_in_each_branch(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t % 2) {
        s[t] = x[t];
        __syncthreads();  // BUG
        y[t] = s[t];
    } else {
        s[t] = -x[t];
        __syncthreads();  // BUG
        y[t] = s[t] * 2.0f;
    }
}

// wrong barrier loop_left_early<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void loop_left_early(float *y, const float *x)
{
    float v = x[threadIdx.x];
    for (int k = 0; k < 8; ++k) {
        if (v + k > 66.0f)
            break;
        __syncthreads();  // BUG
    }
    y[threadIdx.x] = v;
}

// wrong barrier counted_too_high<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void counted_too_high(float *y, const float *x)
{
    if (threadIdx.x < 32) {
        y[threadIdx.x] = x[threadIdx.x];
        asm volatile("bar.sync 1, 64;" ::: "memory");  // BUG
    }
}

// wrong barrier syncwarp_names_too_many<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void syncwarp_names_too_many(float *y, const float *x)
{
    if (threadIdx.x < 16) {
        y[threadIdx.x] = x[threadIdx.x];
        __syncwarp();  // BUG
        y[threadIdx.x] += 1.0f;
        return;
    }
    __syncthreads();
    y[threadIdx.x] = 0.0f;
}

// wrong barrier only_the_first_thread<<<2, 64>>>(new f4 2, ramp f4 128)
extern "C" __global__ void only_the_first_thread(float *y, const float *x)
{
    if (threadIdx.x == 0) {
        y[blockIdx.x] = x[blockIdx.x * 64];
        __syncthreads();  // BUG
    }
}

// wrong no_progress loop_without_step<<<1, 32>>>(new f4 32, ramp f4 32, 10)
extern "C" __global__ void loop_without_step(float *y, const float *x, int n)
{
    volatile int k = 0;
    float sum = 0.0f;
    while (k < n)  // BUG
        sum += x[threadIdx.x];  // BUG
    y[threadIdx.x] = sum;
}

// wrong no_progress flag_nobody_sets<<<1, 32>>>(new i4 1, zeros i4 1)
extern "C" __global__ void flag_nobody_sets(int *y, int *flag)
{
    while (atomicAdd(flag, 0) == 0) {}  // BUG
    *y = 1;
}

// wrong no_progress lock_never_released<<<2, 32>>>(zeros i4 1, zeros i4 1)
extern "C" __global__ void lock_never_released(int *count, int *taken)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(taken, 0, 1) != 0) {}  // BUG
        atomicAdd(count, 1);
    }
}

// wrong no_progress waits_for_itself<<<2, 32>>>(new i4 2, zeros i4 2)
extern "C" __global__ void waits_for_itself(int *y, int *ready)
{
    if (threadIdx.x == 0) {
        while (atomicAdd(&ready[1 - blockIdx.x], 0) == 0) {}  // BUG
        atomicExch(&ready[blockIdx.x], 1);
        y[blockIdx.x] = 1;
    }
}

// right whole_blocks_leave<<<4, 32>>>(new f4 64, ramp f4 64, 64)
extern "C" __global__ void whole_blocks_leave(float *y, const float *x, int n)
{
    __shared__ float s[32];
    int first = blockIdx.x * 32;
    if (first >= n)
        return;
    s[threadIdx.x] = x[first + threadIdx.x];
    __syncthreads();
    y[first + threadIdx.x] = s[31 - threadIdx.x];
}

// right leave_after_the_barrier<<<2, 64>>>(new f4 100, ramp f4 100, 100)
extern "C" __global__ void leave_after_the_barrier(float *y, const float *x, int n)
{
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i >= n)
        return;
    y[i] = s[63 - threadIdx.x];
}

// right uniform_branch<<<2, 64>>>(new f4 128, ramp f4 128)
extern "C" __global__ void uniform_branch(float *y, const float *x)
{
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x] = x[i];
    if (blockIdx.x == 1) {
        __syncthreads();
        y[i] = s[63 - threadIdx.x];
    } else {
        y[i] = s[threadIdx.x];
    }
}

// right same_trip_count<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void same_trip_count(float *y, const float *x)
{
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = threadIdx.x; k < 64 * 3 + threadIdx.x; k += 64) {
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        sum += s[63 - threadIdx.x];
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}

// right counted_after_exit<<<1, 64>>>(new f4 32, ramp f4 64)
extern "C" __global__ void counted_after_exit(float *y, const float *x)
{
    __shared__ float s[32];
    if (threadIdx.x >= 32)
        return;
    s[threadIdx.x] = x[threadIdx.x];
    asm volatile("bar.sync 1, 32;" ::: "memory");
    y[threadIdx.x] = s[31 - threadIdx.x];
}

// right two_teams<<<1, 128>>>(new f4 128, ramp f4 128)
extern "C" __global__ void two_teams(float *y, const float *x)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 64)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 2, 64;" ::: "memory");
    y[t] = s[t ^ 63];
}

// right producer_and_consumer<<<1, 64>>>(new f4 32, ramp f4 32)
extern "C" __global__ void producer_and_consumer(float *y, const float *x)
{
    __shared__ float s[32];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = x[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        y[threadIdx.x - 32] = s[63 - threadIdx.x];
    }
}

// right teams_by_number<<<2, 256>>>(new f4 512, ramp f4 4x512)
extern "C" __global__ void teams_by_number(float *y, const float *x)
{
    __shared__ float s[256];
    int t = threadIdx.x, first = blockIdx.x * 256;
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        s[t] = x[512 * k + first + t];
        asm volatile("bar.sync %0, 64;" :: "r"(1 + t / 64) : "memory");
        sum += s[t ^ 63];
        asm volatile("bar.sync %0, 64;" :: "r"(1 + t / 64) : "memory");
    }
    s[t] = sum;
    __syncthreads();
    y[first + t] = s[255 - t];
}

// right through_the_team_between<<<1, 96>>>(new f4 32, ramp f4 32)
extern "C" __global__ void through_the_team_between(float *y, const float *x)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        asm volatile("bar.sync 1, 64;" ::: "memory");
    } else if (t < 64) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
        y[t - 64] = s[95 - t];
    }
}

// right filled_and_free<<<1, 128>>>(new f4 96, ramp f4 6x32)
extern "C" __global__ void filled_and_free(float *y, const float *x)
{
    __shared__ float s[2][32];  // barriers 1 and 2: filled; 3 and 4: free again
    int t = threadIdx.x;
    if (t < 32) {
        for (int k = 0; k < 6; ++k) {
            if (k >= 2)
                asm volatile("bar.sync %0, 128;" :: "r"(3 + k % 2) : "memory");
            s[k % 2][t] = x[32 * k + t];
            asm volatile("bar.arrive %0, 128;" :: "r"(1 + k % 2) : "memory");
        }
    } else {
        float sum = 0.0f;
        for (int k = 0; k < 6; ++k) {
            asm volatile("bar.sync %0, 128;" :: "r"(1 + k % 2) : "memory");
            sum += s[k % 2][31 - t % 32];
            if (k < 4)
                asm volatile("bar.arrive %0, 128;" :: "r"(3 + k % 2) : "memory");
        }
        y[t - 32] = sum;
    }
}

// right syncwarp_in_both_branches<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void syncwarp_in_both_branches(float *y, const float *x)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    if (t < 16) {
        s[t] = x[t];
        __syncwarp();
    } else {
        s[t] = 2.0f * x[t];
        __syncwarp();
    }
    y[t] = s[31 - t];
}

// right vote_of_a_block<<<1, 64>>>(new i4 64, ramp i4 64)
extern "C" __global__ void vote_of_a_block(int *y, const int *x)
{
    y[threadIdx.x] = __syncthreads_count(x[threadIdx.x] % 3 == 0);
}

// right lock_within_a_warp<<<1, 32>>>(zeros i4 1, zeros i4 1)
extern "C" __global__ void lock_within_a_warp(int *count, int *taken)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(taken, 0, 1) == 0) {
            __threadfence();
            *count += 1;
            __threadfence();
            atomicExch(taken, 0);
            done = true;
        }
    }
}

// right long_but_finite<<<1, 32>>>(new i4 32, 3000)
extern "C" __global__ void long_but_finite(int *y, int n)
{
    unsigned v = threadIdx.x;
    for (int k = 0; k < n; ++k)
        v = v * 1664525u + 1013904223u;
    y[threadIdx.x] = v;
}
