#pragma once

#include "base/clock.hpp"
#include "base/fork_guard.hpp"
#include "base/trust_window.hpp"
#include "coordination/queue/queue_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/fencing_token.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

namespace rowlock::detail {

using std::chrono::nanoseconds;

class engine;

/// One grant of one name to this client: what a lease object points to.
struct grant {
    /// released_in: freed by a transaction of the caller's, of whose end we do not hear.
    enum class state : unsigned char { held, released_in, releasing, released, lost };

    std::string name;
    std::string thread;  ///< that acquired it, as far as deadlocks are concerned
    fencing_token token;
    std::int64_t grant_id = 0;
    std::int64_t session_id = 0;
    bool queued = false;              ///< got by standing in line: others may stand there still
    std::atomic<bool> fenced{false};  ///< a transaction of the caller's may have its row
    std::shared_ptr<trust_window> session_trust;
    nanoseconds deadline = base::alarm::never;  ///< the lease's own, on our clock, margin taken off
    nanoseconds deadline_margin{0};
    nanoseconds deadline_over{0};  ///< the database has seen it pass by then, by our clock
    std::weak_ptr<engine> owner;
    base::clock clock;
    base::fork_guard fork;
    std::atomic<state> now{state::held};
    std::atomic<loss_reason> reason{loss_reason::none};
    /// The holder has said that it works no more on what this protects, or no holder was ever told
    /// of it. Until then a lost grant is freed by nothing of ours before its margin is over.
    std::atomic<bool> stopped{false};
    std::atomic<bool> row_given_up{false};  ///< that of one whose own deadline has passed
    /// What transactions of the caller's have released so far: a fence that was sent before the
    /// latest of them says nothing about it.
    std::mutex mutex;
    unsigned releases_in = 0;
    /// Who waits behind it, once its first look has found out, and until when that is to be relied
    /// on. Guarded by the mutex above.
    std::optional<strategy::next_in_line> next{};
    nanoseconds next_until{0};
    std::atomic<bool> watched{false};  ///< somebody took lost(): callbacks may be waiting
    std::stop_source lost_signal{};

    [[nodiscard]] bool held() noexcept;
    [[nodiscard]] nanoseconds remaining() noexcept;
};

/// errc::lock_lost, with the reason.
[[nodiscard]] error lost_error(const grant& lost);
[[nodiscard]] error client_destroyed();

}  // namespace rowlock::detail
