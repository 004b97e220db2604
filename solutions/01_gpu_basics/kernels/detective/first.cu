// y[r] = sum over c of A[r, c] * x[c]: a matrix times a vector, one warp per row. A: rows x columns, float32.

extern "C" __global__ void first(float *y, const float *A, const float *x, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float total = 0;
    for (int c = lane; c < columns; c += 32)  // neighbouring lanes, neighbouring columns
        total += A[(size_t)row * columns + c] * x[c];
    for (int d = 16; d; d /= 2)
        total += __shfl_down_sync(0xffffffff, total, d);
    if (lane == 0)  // it alone has the sum
        y[row] = total;
}
