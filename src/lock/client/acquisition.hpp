#pragma once

#include "lock/client/retry_limits.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/session.hpp"
#include "sql/server_identity.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/lock_name.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rowlock::detail {

/// One of several locks that a call acquires, and what of it.
struct wanted_lock {
    lock_name name;
    protocol::wanted_permits what{};
};

/// State of one acquire call: its request, and what it does not know yet.
struct acquisition {
    using steady = std::chrono::steady_clock;

    client_context& context;
    grant_lifecycle& grants;
    const lock_name& name;
    const acquire_options& options;
    const std::stop_token& stop;
    steady::time_point until;
    std::string thread;
    protocol::wanted_permits permits{};
    int priority = 0;  ///< of the queue entry
    bool withheld = false;
    std::string blocks{};  ///< of the queue entry: party_labels.hpp
    steady::time_point began = steady::now();

    std::shared_ptr<session> ours{};
    /// An attempt whose reply was lost. Each later attempt searches for these first and uses a new
    /// id, so that a late statement with an old id cannot be mistaken for the known hold.
    struct lost_attempt {
        rowlock::grant_id grant_id;
        nanoseconds sent;
    };
    std::vector<lost_attempt> unknown{};
    rowlock::grant_id grant_id{};
    nanoseconds sent{0};
    std::int64_t looks_before = 0;  ///< change_news::looks, when the attempt was sent
    /// How its next round asks.
    enum class approach : unsigned char {
        together,    ///< by one statement with the attempts of other threads
        alone,       ///< by its own statement
        look_first,  ///< likewise, if a look finds the lock free: another client was faster before
        enqueue,     ///< it takes a place in the queue, which most likely still exists
    };
    approach next = approach::together;
    bool had_entry = false;  ///< had a queue entry, not yet reported as lost
    bool seen_held = false;  ///< the database has shown another holder: this is a waiter
    /// Its thread held other leases when it enqueued; or this call adds to a hold.
    bool holds_others = false;
    bool contended = false;  ///< as known from this client's last release
    contention_limit contention{};
    late_grant_limit too_late{};
    sweep_patience sweeps{};
    /// The next pause of a barging caller.
    std::chrono::milliseconds poll{options.spin.first};

    /// Whether the caller set a time limit: neither indefinite nor a single attempt.
    [[nodiscard]] bool limited() const {
        return until > began && until != steady::time_point::max();
    }
    [[nodiscard]] bool has_time() const { return steady::now() < until; }
    [[nodiscard]] bool single_attempt() const { return until <= began; }
    /// Whether an attempt that found the lock held may be repeated at once.
    [[nodiscard]] bool may_repeat() const { return single_attempt() || has_time(); }
    /// Of an attempt of this call, in its session.
    [[nodiscard]] protocol::hold_key key(rowlock::grant_id of) const {
        return protocol::key_of(permits, name.str(), ours->id(), of);
    }
    /// Whether it is taken by a comparison with its row's token: what this client knows of that
    /// helps.
    [[nodiscard]] bool by_token() const { return !permits.is_part(); }
    [[nodiscard]] bool barging() const { return options.queueing == queueing::barging; }
    [[nodiscard]] std::chrono::microseconds waited() const {
        return std::chrono::duration_cast<std::chrono::microseconds>(steady::now() - began);
    }
    [[nodiscard]] protocol::grant_request request() const {
        std::optional<std::int64_t> deadline_us;
        if (options.max_duration) {
            deadline_us = std::chrono::microseconds{*options.max_duration}.count();
        }
        // In a cluster the member that serves may have another clock than the one that enqueued.
        std::optional<std::int64_t> limit_us;
        if (limited() && !sql::identifies_cluster(ours->server())) {
            limit_us = std::chrono::ceil<std::chrono::microseconds>(until - steady::now()).count();
        }
        return {.name = name.str(),
                .session = ours->id(),
                .grant_id = grant_id,
                .thread = thread,
                .note = options.note,
                .deadline_us = deadline_us,
                .barging = barging(),
                .permits = permits,
                .blocks = blocks,
                .priority = priority,
                .server = ours->server(),
                .limit_us = limit_us};
    }

    /// Makes the call, and measures how long that takes. `make` returns grants, or none.
    template <typename Make>
    auto measured(metrics::acquire_mode mode, Make make) {
        using metrics::acquire_outcome;
        const auto record = [&](acquire_outcome how) {
            context.measured.of(name.str()).acquired(mode, how, steady::now() - began);
        };
        try {
            auto granted = make();
            const bool none = granted == decltype(granted){};
            record(!none                   ? acquire_outcome::granted
                   : stop.stop_requested() ? acquire_outcome::stopped
                                           : acquire_outcome::busy);
            return granted;
        } catch (...) {
            record(acquire_outcome::failed);
            throw;
        }
    }

    /// Whether the holder is a lost attempt of this call that took effect meanwhile.
    [[nodiscard]] bool is_ours(const protocol::lease_probe& seen) const {
        return std::ranges::any_of(
            unknown, [&](const auto& lost) { return lost.grant_id == seen.grant_id; });
    }

    /// Calls `send` for an attempt with a new grant id, which the session knows for as long as the
    /// attempt may have been granted. Returns nullopt if `send` does.
    template <typename Send>
    std::optional<protocol::attempt> send_as_new(Send send) {
        grant_id = rowlock::grant_id{context.next_id()};
        ours->expect(key(grant_id));
        std::optional<protocol::attempt> answer;
        try {
            sent = context.now();
            looks_before = ours->news().looks;
            answer = send();
        } catch (const error& failure) {
            if (failure.kind() == errc::outcome_unknown) {
                lose_sight();
            } else {
                ours->grants().forget(grant_id);
            }
            throw;
        } catch (...) {
            lose_sight();  // out of memory: the statement may have run
            throw;
        }
        if (!answer || answer->what != protocol::attempt::outcome::granted)
            ours->grants().forget(grant_id);
        return answer;
    }

    /// Records the last attempt as one with an unknown outcome.
    void lose_sight() noexcept {
        try {
            unknown.push_back({grant_id, sent});
        } catch (...) {
            give_up(grant_id);
        }
    }

    void use(std::shared_ptr<session> live) {
        if (ours == live) return;
        hand_over();
        ours = std::move(live);
    }
    /// Leaves the attempts that this call did not find to the heartbeat.
    void hand_over() noexcept {
        if (unknown.empty()) return;
        for (const auto& lost : unknown) give_up(lost.grant_id);
        unknown.clear();
    }
    void give_up(rowlock::grant_id lost) noexcept {
        grants.leave_unresolved(*ours, key(lost),
                                {.not_after = context.now() + context.statement_bound()});
    }
    ~acquisition() { hand_over(); }
};

}  // namespace rowlock::detail
