#pragma once

#include "base/clock.hpp"
#include "base/fork_guard.hpp"
#include "base/trust_window.hpp"
#include "lock/protocol/hold/hold_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "metrics/measurements.hpp"
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/fencing_token.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lock_mode.hpp>

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
    /// released_in: freed in a transaction of the caller, whose outcome we do not see.
    /// offered: another client may take it over at any time.
    enum class state : unsigned char { held, released_in, offered, releasing, released, lost };

    std::string name;
    std::string thread;                    ///< the acquiring thread's label, for deadlock detection
    std::atomic<std::int64_t> permits{0};  ///< as far as is known; 0: it is a lease
    bool of_mode = false;                  ///< its caller has asked for a mode of a shared_mutex
    /// Set for ever before a statement is sent that makes a part of what was all of the lock
    /// (releaser::shrink): from then on the table may have the grant as either, whatever
    /// is_part() says.
    std::atomic<bool> perhaps_lowered{false};
    /// Of a shared_mutex: as its holder has it. The table may have a stronger one, until it has
    /// learnt of a downgrade.
    std::atomic<lock_mode> mode{lock_mode::exclusive};
    /// Of a counted hold: the grant by which it has all of the lock, or none. The table names that
    /// beside the hold, and ends it with the hold.
    std::atomic<rowlock::grant_id> upgrade{};
    std::atomic<std::int64_t> upgrade_token{0};  ///< of the latest
    /// An upgrade whose end was not confirmed, or none: it may be in force, and what it leaves
    /// behind may come late.
    std::atomic<rowlock::grant_id> ending{};
    fencing_token token;
    /// Of its row: `token`, unless the lease was extended.
    std::atomic<std::int64_t> row_token{0};
    std::atomic<std::int64_t> next_row_token{
        0};  ///< a statement is, or was, under way that sets it
    rowlock::grant_id grant_id{};
    rowlock::session_id session_id{};
    /// No caller has it, not yet or no longer: it does not count as held, and its end is neither a
    /// release nor a loss. Set before the state, where both change.
    std::atomic<bool> unclaimed{false};
    /// A call of the library has it, which may still give it back: no caller is told that it is
    /// held.
    std::atomic<bool> withheld{false};
    std::atomic<bool> queued{false};   ///< granted through the queue: others may still wait there
    std::atomic<bool> fenced{false};   ///< a transaction of the caller may have its row locked
    std::atomic<bool> offered{false};  ///< once: another client may know the grant
    std::atomic<bool> taken_over{false};  ///< another client has adopted it
    std::shared_ptr<trust_window> session_trust;
    /// The hold's own, on our clock, less the margin; 0 once a thread has seen it pass (in_time).
    /// Else changed by grant_deadlines alone.
    std::atomic<nanoseconds> deadline{base::alarm::never};
    nanoseconds deadline_key{base::alarm::never};  ///< as grant_deadlines has it, and guards it
    std::atomic<nanoseconds> deadline_margin{nanoseconds{0}};
    /// By then, on our clock, the database sees it as passed. Guarded by grant_deadlines.
    nanoseconds deadline_over{0};
    /// No extension moves the deadline past this: another client has asked for the release.
    /// Guarded by grant_deadlines.
    nanoseconds deadline_cap{base::alarm::never};
    nanoseconds made_at{0};  ///< on our clock
    /// Its class, in the context of its client; null in tests that make grants themselves.
    metrics::class_measurements* measured = nullptr;
    std::weak_ptr<engine> owner;
    base::clock clock;
    base::fork_guard fork;
    std::atomic<state> now{state::held};
    std::atomic<loss_reason> reason{loss_reason::none};
    /// The holder has reported that it stopped work under this grant, or no holder ever received
    /// it. Until then this client does not free a lost grant before its margin is over.
    std::atomic<bool> stopped{false};
    std::atomic<bool> row_given_up{false};  ///< clear_row() was called for it
    /// Counts releases in transactions of the caller: a fence that was sent before the latest of
    /// them says nothing about it.
    std::mutex mutex;
    unsigned releases_in = 0;
    /// The next waiter, once the first read of the queue has found it, and until when that is
    /// valid. Guarded by the mutex above.
    std::optional<protocol::next_waiter> next{};
    nanoseconds next_until{0};
    /// Another client has asked for its release by `deadline`; the latest request is guarded by the
    /// mutex above.
    std::atomic<bool> requested{false};
    std::optional<release_request> request{};
    std::stop_source request_signal{};
    std::atomic<bool> watched{false};  ///< lost() was called: callbacks may be registered
    std::stop_source lost_signal{};

    [[nodiscard]] bool is_part() const noexcept { return permits > 0; }
    /// Whether it is sure to be all of the lock.
    [[nodiscard]] bool is_whole() const noexcept { return !is_part() && !perhaps_lowered; }
    [[nodiscard]] protocol::hold_key key() const noexcept {
        return {name, session_id, grant_id, is_part(), &perhaps_lowered};
    }
    [[nodiscard]] bool held() noexcept;
    /// Whether its own deadline is later than `time`. Once it is not, it stays so: no extension
    /// whose answer comes later makes it held again.
    [[nodiscard]] bool in_time(nanoseconds time) noexcept;
    [[nodiscard]] nanoseconds remaining() noexcept;
    /// The greatest token that its row may have by now.
    [[nodiscard]] std::int64_t last_row_token() const noexcept;
};

/// Raises one of its tokens; never lowers it.
void raise(std::atomic<std::int64_t>& token, std::int64_t to) noexcept;

/// errc::lock_lost, with the reason.
[[nodiscard]] error lost_error(const grant& lost);
[[nodiscard]] error client_destroyed();

}  // namespace rowlock::detail
