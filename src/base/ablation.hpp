#pragma once

#ifdef ROWLOCK_ABLATION
#include <atomic>
#endif

namespace rowlock::base {

/// The shortcuts whose worth bench/ablation measures, by switching them off one at a time. Those
/// that an option of the client switches (wake_ups, releasing) are not here.
enum class fast_path : unsigned char {
    reacquire,        ///< by the token that the name was freed with, as this client remembers it
    batches,          ///< threads of one client that call at the same moment share statements
    probe_held,       ///< a try for a name that was held the last time begins with a read
    prefetched_next,  ///< who comes next is found out while the lease is held
    reserved_token,   ///< and its token is durable before it is told
    single_text,      ///< MySQL and MariaDB: the hand-over's transaction in one round trip
};

#ifdef ROWLOCK_ABLATION
/// A bit for each path that is switched off in this process.
inline std::atomic<unsigned> switched_off{0};

[[nodiscard]] inline unsigned bit_of(fast_path which) noexcept {
    return 1U << static_cast<unsigned>(which);
}

[[nodiscard]] inline bool uses(fast_path which) noexcept {
    return (switched_off.load(std::memory_order_relaxed) & bit_of(which)) == 0;
}
#else
[[nodiscard]] constexpr bool uses(fast_path) noexcept {
    return true;
}
#endif

}  // namespace rowlock::base
