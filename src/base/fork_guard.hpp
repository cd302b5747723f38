#pragma once

#include <cstdint>

namespace rowlock::base {

/// Counts the fork()s between this process and the one that loaded the library. An object records
/// the count when it is made; if the count differs later the object is a forked child's copy, whose
/// sockets, threads and leases belong to the parent.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

class fork_guard {
public:
    fork_guard() noexcept : made_in_{fork_generation()} {}
    [[nodiscard]] bool in_child() const noexcept { return made_in_ != fork_generation(); }
    /// @throws error errc::wrong_process in a child
    void require_same_process() const;

private:
    std::uint64_t made_in_;
};

}  // namespace rowlock::base
