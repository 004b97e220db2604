// family: compile bomb
// target: vector_add/grid
// tries:  templates of which each needs two others, 2^60 in all.
// naive:  plain
// gains:  stops
// ours:   timeout|fail .
//
// launch add<<<((N + 255) / 256), (256), 0>>>(C, A, B, N)

template <int Depth, long Path> struct Bomb {
    static constexpr long value = Bomb<Depth - 1, 2 * Path>::value + Bomb<Depth - 1, 2 * Path + 1>::value;
};
template <long Path> struct Bomb<0, Path> {
    static constexpr long value = 1;
};

extern "C" __global__ void add(float *C, const float *A, const float *B, int N)
{
    C[0] = Bomb<60, 1>::value;
}
