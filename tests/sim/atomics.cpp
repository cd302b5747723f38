// Atomic operations as scheduling points. In a build with ROWLOCK_SIM_ATOMICS the library is
// compiled with -fsanitize=thread, so that each of its atomic operations is a call of
// __tsan_atomic…; these are the functions that it calls, in the place of ThreadSanitizer's. Before
// an operation another thread may be chosen, by chance. Threads are fibers on one real thread, so
// any memory order is the strictest.
//
// Plain accesses are calls as well, of which nothing is made: races of data are found by
// ThreadSanitizer itself, on real threads (scripts/test --sanitize).

#include "scheduler.hpp"

#include <cstddef>
#include <cstdint>

namespace {

void scheduling_point() {
    constexpr double chance = 0.02;
    if (rowlock::sim::world != nullptr) rowlock::sim::world->give_way_at(chance);
}

}  // namespace

// The names are the compiler's.
// NOLINTBEGIN(bugprone-reserved-identifier)
// clang-format off
#define ROWLOCK_SIM_ATOMIC(bits)                                                                       \
    std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, int) {      \
        scheduling_point();                                                                            \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                                  \
    void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t value, int) { \
        scheduling_point();                                                                            \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
    }                                                                                                  \
    ROWLOCK_SIM_CHANGE(bits, exchange, __atomic_exchange_n)                                            \
    ROWLOCK_SIM_CHANGE(bits, fetch_add, __atomic_fetch_add)                                            \
    ROWLOCK_SIM_CHANGE(bits, fetch_sub, __atomic_fetch_sub)                                            \
    ROWLOCK_SIM_CHANGE(bits, fetch_and, __atomic_fetch_and)                                            \
    ROWLOCK_SIM_CHANGE(bits, fetch_or, __atomic_fetch_or)                                              \
    ROWLOCK_SIM_CHANGE(bits, fetch_xor, __atomic_fetch_xor)                                            \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* at,               \
                                                       std::uint##bits##_t* expected,                  \
                                                       std::uint##bits##_t value, int, int) {          \
        scheduling_point();                                                                            \
        return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,               \
                                           __ATOMIC_SEQ_CST);                                          \
    }                                                                                                  \
    bool __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* at,                 \
                                                     std::uint##bits##_t* expected,                    \
                                                     std::uint##bits##_t value, int, int) {            \
        return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, 0, 0);               \
    }
#define ROWLOCK_SIM_CHANGE(bits, name, builtin)                                                        \
    std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* at,                 \
                                                     std::uint##bits##_t value, int) {                 \
        scheduling_point();                                                                            \
        return builtin(at, value, __ATOMIC_SEQ_CST);                                                   \
    }
#define ROWLOCK_SIM_ACCESS(bytes)                                                                      \
    void __tsan_read##bytes(void*) {}                                                                  \
    void __tsan_write##bytes(void*) {}                                                                 \
    void __tsan_unaligned_read##bytes(void*) {}                                                        \
    void __tsan_unaligned_write##bytes(void*) {}                                                       \
    void __tsan_volatile_read##bytes(void*) {}                                                         \
    void __tsan_volatile_write##bytes(void*) {}

extern "C" {

ROWLOCK_SIM_ATOMIC(8)
ROWLOCK_SIM_ATOMIC(16)
ROWLOCK_SIM_ATOMIC(32)
ROWLOCK_SIM_ATOMIC(64)
ROWLOCK_SIM_ACCESS(1)
ROWLOCK_SIM_ACCESS(2)
ROWLOCK_SIM_ACCESS(4)
ROWLOCK_SIM_ACCESS(8)
ROWLOCK_SIM_ACCESS(16)
void __tsan_atomic_thread_fence(int) { scheduling_point(); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void*, std::size_t) {}
void __tsan_write_range(void*, std::size_t) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

}  // extern "C"
// clang-format on
// NOLINTEND(bugprone-reserved-identifier)
