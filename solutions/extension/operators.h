// What generated launches share: pointers of any type, 64-bit minima, and shared memory beyond 48 KiB.
#pragma once
#include <cstdint>

struct Pointer {
    void *data;
    template <class T>
    operator T *() const
    {
        return static_cast<T *>(data);
    }
};

inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

#ifdef __CUDACC__
// A block gets more than 48 KiB of dynamic shared memory only if its kernel asked for it, on each device anew.
template <class Kernel>
void allow_shared(const char *name, Kernel *kernel, int64_t bytes)
{
    if (bytes <= 48 * 1024)
        return;
    int64_t most = at::cuda::getCurrentDeviceProperties()->sharedMemPerBlockOptin;
    TORCH_CHECK(bytes <= most, name, ": a block needs ", bytes, " bytes of shared memory, and this GPU gives it ", most,
                " at most; run it on another GPU.");
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}
#endif
