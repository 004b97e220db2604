// family: uninitialized shared memory
// target: reduce/sequential
// tries:  adds to shared memory that nobody has cleared, and that is often zero.
// naive:  plain
// gains:  marks
// shape:  N=1000
// ours:   fail written|uninitialized|initiali
//
// launch add_up<<<(1), (1), 0>>>(y, x, N)

extern "C" __global__ void add_up(float *y, const float *x, int N)
{
    __shared__ float sum[1];
    for (int i = 0; i < N; ++i)
        sum[0] += x[i];
    y[0] = sum[0];
}
