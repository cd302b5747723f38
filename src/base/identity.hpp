#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace rowlock::base {

/// Above 0, so many random bits from the kernel's generator, which nobody can foretell: two
/// processes never share a sequence, also after fork(). One system call.
/// @throws std::exception if the kernel has none to give
[[nodiscard]] std::int64_t random_id(int bits = 62);

/// Many of them, for a system call each 32 ids: 62 random bits, above 0. No id tells anything of
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

/// For people; "unknown" if the system does not tell.
[[nodiscard]] std::string host_name();

}  // namespace rowlock::base
