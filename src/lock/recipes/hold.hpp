#pragma once

#include "base/fork_guard.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace rowlock::detail {

/// A mutex's local view of its lock. Its guard is never held over a round trip.
///
///     owner    depth  lease
///     none     0      none           free here; another thread may wait in the database
///     thread   1      held or lost   locked
///     thread   n > 1  held or lost   locked n times (recursive)
struct hold {
    hold(client& locks_, const lock_name& name_, acquire_options options_)
        : locks{locks_}, name{name_}, options{std::move(options_)} {}

    client& locks;
    const lock_name name;
    const acquire_options options;

    const base::fork_guard fork{};  ///< in a child another thread's lock of the guard never ends
    mutable std::mutex guard;
    std::thread::id owner{};
    int depth = 0;
    std::optional<lease> current{};

    [[nodiscard]] bool is_mine() const;  ///< call with the guard held
    void take(lease granted);
    /// Gives up one hold. Returns the lease if that was the last.
    /// @throws error errc::not_owner; errc::wrong_process in a forked child
    std::optional<lease> give_back();

    /// What `read` returns, with the guard held, if the calling thread has the lock.
    template <typename Value, typename Read>
    [[nodiscard]] Value of_mine(Value otherwise, Read read) const {
        if (fork.in_child()) return otherwise;
        const std::lock_guard lock{guard};
        return is_mine() ? read() : otherwise;
    }

    [[nodiscard]] fencing_token token() const noexcept;
    [[nodiscard]] bool held() const noexcept;
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    [[nodiscard]] std::stop_token lost() const;
};

}  // namespace rowlock::detail
