#pragma once

#include <atomic>
#include <cstdint>

/// Makes allocations and system calls fail where a test chooses. For programs that are linked with
/// failing_calls.cpp, which replaces operator new and precedes the C library's functions.
namespace support {

/// Makes the nth allocation of this thread fail, once, during its lifetime.
class failing_allocation {
public:
    explicit failing_allocation(std::int64_t nth);
    ~failing_allocation();
    failing_allocation(const failing_allocation&) = delete;
    failing_allocation& operator=(const failing_allocation&) = delete;
    [[nodiscard]] bool happened() const;
};

/// Makes every nth allocation of all other threads fail during its lifetime.
class failing_background {
public:
    explicit failing_background(std::int64_t nth);
    ~failing_background();
    failing_background(const failing_background&) = delete;
    failing_background& operator=(const failing_background&) = delete;
    [[nodiscard]] std::int64_t failures() const;
};

enum class system_call : unsigned char {
    pthread_create,
    eventfd,
    timerfd_create,
    socket,
    connect,
    open,
    count_of_calls,
};

[[nodiscard]] const char* to_string(system_call which) noexcept;

/// Makes the nth call, by any thread, and the next `more` fail for lack of resources.
class failing_system_call {
public:
    failing_system_call(system_call which, std::int64_t nth, std::int64_t more = 0);
    ~failing_system_call();
    failing_system_call(const failing_system_call&) = delete;
    failing_system_call& operator=(const failing_system_call&) = delete;
    [[nodiscard]] bool happened() const;
};

}  // namespace support
