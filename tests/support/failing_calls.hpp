#pragma once

#include <atomic>
#include <cstdint>

/// Makes memory and system calls run out where a test wants it. For programs that are linked with
/// failing_calls.cpp, which replaces operator new and stands before the C library's functions.
namespace support {

/// The nth allocation of this thread fails, once, as long as this lives.
class failing_allocation {
public:
    explicit failing_allocation(std::int64_t nth);
    ~failing_allocation();
    failing_allocation(const failing_allocation&) = delete;
    failing_allocation& operator=(const failing_allocation&) = delete;
    [[nodiscard]] bool happened() const;
};

/// Every nth allocation of all other threads fails, as long as this lives.
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

/// The nth call, by whichever thread, fails for want of resources, and so do the next `more`.
class failing_system_call {
public:
    failing_system_call(system_call which, std::int64_t nth, std::int64_t more = 0);
    ~failing_system_call();
    failing_system_call(const failing_system_call&) = delete;
    failing_system_call& operator=(const failing_system_call&) = delete;
    [[nodiscard]] bool happened() const;
};

}  // namespace support
