#include "support/failing_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace support {
namespace {

thread_local std::int64_t allocations_left = 0;  // 0: none fails
thread_local bool allocation_failed = false;
thread_local bool spared = false;  // by failing_background
std::atomic<std::int64_t> every{0};
std::atomic<std::int64_t> counted{0};
std::atomic<std::int64_t> failed{0};

struct limits {
    std::atomic<std::int64_t> first{0};  // 0: none fails
    std::atomic<std::int64_t> last{0};
    std::atomic<std::int64_t> made{0};
    std::atomic<bool> happened{false};
};
std::array<limits, static_cast<std::size_t>(system_call::count_of_calls)> calls;
system_call failing_now = system_call::count_of_calls;

bool allocation_fails() noexcept {
    if (allocations_left > 0 && --allocations_left == 0) return allocation_failed = true;
    const auto step = every.load(std::memory_order_relaxed);
    if (step == 0 || spared) return false;
    if (counted.fetch_add(1, std::memory_order_relaxed) % step != step - 1) return false;
    failed.fetch_add(1, std::memory_order_relaxed);
    return true;
}

bool call_fails(system_call which) noexcept {
    auto& its = calls[static_cast<std::size_t>(which)];
    const auto first = its.first.load();
    if (first == 0) return false;
    const auto number = its.made.fetch_add(1) + 1;
    if (number < first || number > its.last) return false;
    its.happened = true;
    return true;
}

void* allocate(std::size_t size) {
    if (allocation_fails()) throw std::bad_alloc{};
    // NOLINTNEXTLINE(cppcoreguidelines-no-malloc)
    if (void* const made = std::malloc(size == 0 ? 1 : size)) return made;
    throw std::bad_alloc{};
}

void* allocate(std::size_t size, std::size_t alignment) {
    if (allocation_fails()) throw std::bad_alloc{};
    const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
    if (void* const made = std::aligned_alloc(alignment, rounded)) return made;
    throw std::bad_alloc{};
}

}  // namespace

failing_allocation::failing_allocation(std::int64_t nth) {
    allocation_failed = false;
    allocations_left = nth;
}

failing_allocation::~failing_allocation() {
    allocations_left = 0;
}

bool failing_allocation::happened() const {
    return allocation_failed;
}

failing_background::failing_background(std::int64_t nth) {
    spared = true;
    failed = 0;
    every = nth;
}

failing_background::~failing_background() {
    every = 0;
}

std::int64_t failing_background::failures() const {
    return failed;
}

const char* to_string(system_call which) noexcept {
    constexpr std::array<const char*, 6> names{"pthread_create", "eventfd", "timerfd_create",
                                               "socket",         "connect", "open"};
    return names[static_cast<std::size_t>(which)];
}

failing_system_call::failing_system_call(system_call which, std::int64_t nth, std::int64_t more) {
    failing_now = which;
    auto& its = calls[static_cast<std::size_t>(which)];
    its.happened = false;
    its.made = 0;
    its.last = nth + more;
    its.first = nth;
}

failing_system_call::~failing_system_call() {
    calls[static_cast<std::size_t>(failing_now)].first = 0;
}

bool failing_system_call::happened() const {
    return calls[static_cast<std::size_t>(failing_now)].happened;
}

}  // namespace support

// --- operator new -----------------------------------------------------------------------------

void* operator new(std::size_t size) {
    return support::allocate(size);
}
void* operator new[](std::size_t size) {
    return support::allocate(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return support::allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return support::allocate(size, static_cast<std::size_t>(alignment));
}
// NOLINTBEGIN(cppcoreguidelines-no-malloc)
void operator delete(void* made) noexcept {
    std::free(made);
}
void operator delete[](void* made) noexcept {
    std::free(made);
}
void operator delete(void* made, std::size_t /*size*/) noexcept {
    std::free(made);
}
void operator delete[](void* made, std::size_t /*size*/) noexcept {
    std::free(made);
}
void operator delete(void* made, std::align_val_t /*alignment*/) noexcept {
    std::free(made);
}
void operator delete[](void* made, std::align_val_t /*alignment*/) noexcept {
    std::free(made);
}
void operator delete(void* made, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
    std::free(made);
}
void operator delete[](void* made, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
    std::free(made);
}
// NOLINTEND(cppcoreguidelines-no-malloc)

// --- the C library ----------------------------------------------------------------------------

namespace {

template <typename Function>
Function* next(const char* name) noexcept {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int refused(int why) noexcept {
    errno = why;
    return -1;
}

using support::call_fails;
using support::system_call;

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

int pthread_create(pthread_t* made, const pthread_attr_t* how, void* (*run)(void*),
                   void* argument) noexcept {
    if (call_fails(system_call::pthread_create)) return EAGAIN;
    static auto* const real = next<decltype(pthread_create)>("pthread_create");
    return real(made, how, run, argument);
}

int eventfd(unsigned count, int flags) noexcept {
    if (call_fails(system_call::eventfd)) return refused(EMFILE);
    static auto* const real = next<decltype(eventfd)>("eventfd");
    return real(count, flags);
}

int timerfd_create(clockid_t clock, int flags) noexcept {
    if (call_fails(system_call::timerfd_create)) return refused(EMFILE);
    static auto* const real = next<decltype(timerfd_create)>("timerfd_create");
    return real(clock, flags);
}

int socket(int domain, int type, int protocol) noexcept {
    if (call_fails(system_call::socket)) return refused(EMFILE);
    static auto* const real = next<decltype(socket)>("socket");
    return real(domain, type, protocol);
}

int connect(int descriptor, const sockaddr* where, socklen_t size) {
    if (call_fails(system_call::connect)) return refused(ECONNREFUSED);
    static auto* const real = next<decltype(connect)>("connect");
    return real(descriptor, where, size);
}

int open(const char* path, int flags, ...) {
    if (call_fails(system_call::open)) return refused(EMFILE);
    va_list more;
    va_start(more, flags);
    const auto mode = va_arg(more, mode_t);
    va_end(more);
    static auto* const real = next<int(const char*, int, ...)>("open");
    return real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    if (call_fails(system_call::open)) return refused(EMFILE);
    va_list more;
    va_start(more, flags);
    const auto mode = va_arg(more, mode_t);
    va_end(more);
    static auto* const real = next<int(const char*, int, ...)>("open64");
    return real(path, flags, mode);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
