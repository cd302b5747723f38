#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace rowlock::base {

/// A number above 0 with this many random bits from the kernel's unpredictable generator: two
/// processes never share a sequence, also after fork(). One system call.
/// @throws std::exception if the kernel provides none
[[nodiscard]] std::int64_t random_id(int bits = 62);

/// Such ids at one system call per 32: 62 random bits, above 0. No id reveals anything about
/// another one. A forked child draws its own. Thread-safe.
class random_ids {
public:
    /// @throws std::exception as random_id()
    [[nodiscard]] std::int64_t next();

private:
    std::mutex mutex_;
    std::array<std::uint64_t, 32> drawn_{};
    std::size_t left_ = 0;
    std::uint64_t drawn_in_ = 0;  ///< fork_generation()
};

/// 32 hexadecimal digits, of 128 random bits.
/// @throws std::exception as random_id()
[[nodiscard]] std::string random_secret();

/// For display; "unknown" if the system does not report one.
[[nodiscard]] std::string host_name();

}  // namespace rowlock::base
