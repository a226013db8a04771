// Memory that begins on a cache line, with room for one vector after its end.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "tables.h"

namespace ratenorm {

template <class T> class Buffer {
  public:
    Buffer() = default;
    // Not set to anything.
    explicit Buffer(size_t size) : size_(size), data_(allocated(size)) {}

    static Buffer zeros(size_t size) {
        Buffer made(size);
        std::memset(made.data(), 0, size * sizeof(T) + LINE);
        return made;
    }
    static Buffer copy(const T* from, size_t size) {
        Buffer made(size);
        if (size != 0) std::memcpy(made.data(), from, size * sizeof(T));
        return made;
    }

    T* data() const { return data_.get(); }
    size_t size() const { return size_; }
    View<T> view() const { return {data_.get(), size_}; }
    View<const T> constant() const { return {data_.get(), size_}; }

  private:
    static constexpr size_t LINE = 64;
    struct Free {
        void operator()(T* data) const { ::operator delete(data, std::align_val_t{LINE}); }
    };
    // Large memory in large pages: to be given thousands of small ones takes as long as a short simulation.
    static T* allocated(size_t size) {
        const size_t bytes = size * sizeof(T) + LINE;
        char* made = static_cast<char*>(::operator new(bytes, std::align_val_t{LINE}));
#if defined(__linux__)
        constexpr size_t PAGE = 4096, LARGE = size_t(1) << 22;
        const size_t before = (PAGE - reinterpret_cast<uintptr_t>(made) % PAGE) % PAGE;
        if (bytes >= LARGE) madvise(made + before, (bytes - before) / PAGE * PAGE, MADV_HUGEPAGE);
#endif
        return reinterpret_cast<T*>(made);
    }

    size_t size_ = 0;
    std::unique_ptr<T, Free> data_;
};

} // namespace ratenorm
