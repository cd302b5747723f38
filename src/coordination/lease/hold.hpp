#pragma once

#include <rowlock/client.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace rowlock::detail {

/// What a mutex knows of its lock. Its own guard is never held over a round trip.
///
///     owner    depth  lease
///     nobody   0      none           free here; perhaps another thread waits in the database
///     thread   1      held or lost   locked
///     thread   n > 1  held or lost   locked n times (recursive)
struct hold {
    hold(client& locks_, const lock_name& name_, acquire_options options_)
        : locks{locks_}, name{name_}, options{std::move(options_)} {}

    client& locks;
    const lock_name name;
    const acquire_options options;

    mutable std::mutex guard;
    std::thread::id owner{};
    int depth = 0;
    std::optional<lease> current{};

    [[nodiscard]] bool is_mine() const;  ///< with the guard held
    void take(lease granted);
    /// One hold less; the lease if it was the last.
    /// @throws error errc::not_owner
    std::optional<lease> give_back();

    [[nodiscard]] fencing_token token() const noexcept;
    [[nodiscard]] bool held() const noexcept;
    [[nodiscard]] std::stop_token lost() const;
};

}  // namespace rowlock::detail
