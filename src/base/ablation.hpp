#pragma once

#ifdef ROWLOCK_ABLATION
#include <atomic>
#endif

namespace rowlock::base {

/// Fast paths whose benefit bench/ablation measures by switching them off one at a time. Those that
/// have a client option (wake_ups) are not here.
enum class fast_path : unsigned char {
    reacquire,        ///< a free name is acquired by the token that this client freed it with
    batches,          ///< concurrent calls of one client share statements
    lone_calls,       ///< up to four threads of a client do not: each has its own connection
    probe_held,       ///< a try for a name that was held the last time begins with a read
    prefetched_next,  ///< the holder looks up the next waiter before it releases
    reserved_token,   ///< PostgreSQL: that waiter's token is durable before the release
    single_text,      ///< MySQL and MariaDB: the hand-over's transaction in one round trip
    deferred_check,   ///< an acquire defers the check for waiters that its client's release planned
    late_poll,        ///< a waiter whose client is woken reliably does not poll at once
    write_turns,      ///< SQLite: writers of a file that is contended take turns
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
