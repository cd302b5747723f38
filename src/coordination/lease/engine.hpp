#pragma once

#include "base/clock.hpp"
#include "base/event_queue.hpp"
#include "base/fork_guard.hpp"
#include "base/identity.hpp"
#include "base/loss_notifier.hpp"
#include "base/worker.hpp"
#include "coordination/batch/batch_protocol.hpp"
#include "coordination/batch/batcher.hpp"
#include "coordination/lease/lease_protocol.hpp"
#include "coordination/lease/pipelined_releases.hpp"
#include "coordination/lease/token_cache.hpp"
#include "coordination/queue/queue_protocol.hpp"
#include "coordination/session/grant.hpp"
#include "coordination/session/session.hpp"
#include "coordination/wakeup/mailbox.hpp"
#include "sql/brief_wait.hpp"
#include "sql/connection_pool.hpp"
#include "sql/shared_connection.hpp"
#include "transaction/fencing/fencing.hpp"
#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>
#include <rowlock/stats.hpp>
#include <rowlock/transaction.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rowlock::detail {

struct hold;
struct turn;
class waiting_room;

/// The implementation of a client. engine.cpp: user calls. batching.cpp: calls that concurrent
/// threads share. pipelined_release.cpp: pipelined releases. queueing.cpp: their queue operations.
/// fence.cpp: the caller's transactions. upkeep.cpp: background tasks. hearing.cpp: what wakes a
/// holder.
///
/// Threads: the callers'; one heartbeat with its own connection, and a second heartbeat, from the
/// first late one on; one watchdog that closes the trust window without a network; one reaper on
/// request; the waiting room's thread, from the first wait or release on; delivery of events and
/// loss signals.
/// Locks: state_mutex_ and a session's own mutex are never held over a round trip; reclaiming_ is.
class engine : public std::enable_shared_from_this<engine> {
public:
    using steady = std::chrono::steady_clock;

    engine(sql::connection_source source, client_options options);
    ~engine();
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;

    /// Returns null if `until` passes or a stop is requested first.
    std::shared_ptr<grant> acquire(const lock_name& name, steady::time_point until,
                                   const std::stop_token& stop, const acquire_options& options);
    std::vector<std::shared_ptr<grant>> reclaim();
    void release(grant& held);
    /// Like release(), but reports a failure as an event.
    void release_quietly(const std::shared_ptr<grant>& held) noexcept;

    // In the caller's transaction: fence.cpp
    void fence(sql::connection& db, grant& held, const fence_options& options);
    void release_on_commit(sql::connection& db, grant& held, const fence_options& options);

    std::optional<lease_info> inspect(const lock_name& name);
    std::vector<lease_info> list(std::string_view prefix, const page& page);
    std::vector<waiter_info> queue(const lock_name& name);
    std::optional<std::chrono::milliseconds> request_release(const lock_name& name,
                                                             fencing_token holder);
    bool force_release(const lock_name& name, std::optional<fencing_token> only);

    [[nodiscard]] client_stats stats() const;
    [[nodiscard]] const client_options& options() const noexcept { return options_; }
    [[nodiscard]] const base::fork_guard& fork() const noexcept { return fork_; }
    [[nodiscard]] const base::clock& clock() const noexcept { return clock_; }

    void report(event what) noexcept { events_.post(std::move(what)); }
    void signal(grant& lost) noexcept { signals_.deliver(lost.lost_signal); }
    /// The hold that recursive mutexes of this name share.
    std::shared_ptr<hold> shared_hold(const std::string& name,
                                      const std::function<std::shared_ptr<hold>()>& make);

    /// Ends the session; the object only answers `lost` from then on.
    void close() noexcept;
    /// In a forked child: lets go of connections and threads that belong to the parent.
    static void abandon(std::shared_ptr<engine> inherited) noexcept;

private:
    friend class waiting_room;
    struct acquisition;
    enum class counter {
        acquired,
        busy,
        released,
        lost,
        heartbeats,
        heartbeat_failures,
        reconnects,
        retries,
        sessions,
        unknown_outcomes,
        queued,
        handed_over,
        wake_ups,
        polls,
        cancelled,
        deadlocks,
        count_of_counters
    };

    // --- engine.cpp
    /// No attempt starts after `last_start`, and none goes on after `give_up`.
    struct time_limits {
        // NOLINTNEXTLINE(google-explicit-constructor): most calls have one limit
        time_limits(steady::time_point both) : give_up{both}, last_start{both} {}
        time_limits(steady::time_point give_up_, steady::time_point last_start_)
            : give_up{give_up_}, last_start{std::min(give_up_, last_start_)} {}
        steady::time_point give_up;
        steady::time_point last_start;
    };
    template <typename Action>
    auto repeat(const time_limits& limits, const std::stop_token& stop, Action action);
    template <typename Action>
    auto with_retries(const time_limits& limits, const std::stop_token& stop, Action action);
    std::optional<std::shared_ptr<grant>> ask(acquisition& call);
    std::optional<std::shared_ptr<grant>> wait_for_holder(acquisition& call,
                                                          const strategy::look& seen);
    std::optional<std::shared_ptr<grant>> go_on(acquisition& call);
    [[nodiscard]] bool outlasts(const acquisition& call, const error& failure) const;
    bool wait_to_ask_again(acquisition& call, const error& failure);
    [[nodiscard]] time_limits limits_of(const acquisition& call) const;
    std::shared_ptr<session> ensure_session(sql::connection& db, sql::deadline until);
    std::shared_ptr<session> open_session(sql::connection& db, sql::deadline until);
    [[nodiscard]] session::ears make_ears() const;
    void start_workers(std::shared_ptr<session> opened);
    [[nodiscard]] bool has_workers() const;
    strategy::attempt attempt_once(acquisition& call, sql::connection& db, sql::deadline until);
    strategy::attempt send_acquire(acquisition& call, sql::connection& db, sql::deadline until);
    void end_expired(sql::connection& db, std::int64_t session, sql::deadline until);
    std::shared_ptr<grant> accept(acquisition& call, const strategy::attempt& granted);
    std::shared_ptr<grant> make_grant(session& ours, std::string name, std::int64_t grant_id,
                                      std::int64_t token, nanoseconds sent,
                                      std::optional<std::chrono::microseconds> deadline,
                                      std::string thread);
    std::vector<std::int64_t> reclaim_rows(std::shared_ptr<session>& ours, sql::connection& db,
                                           sql::deadline until);
    std::shared_ptr<grant> adopt(session& ours, const strategy::session_lease& row,
                                 nanoseconds sent, sql::connection& db, sql::deadline until);
    bool wait_and_see(acquisition& call, const strategy::look& seen);
    bool try_again_in_vain(acquisition& call);
    void require_timely(acquisition& call) const;
    bool pause(std::chrono::nanoseconds time, const std::stop_token& stop);
    void forget(const grant& ended);
    void stopped(grant& by) noexcept;
    void require_no_holder_of_lost() const;
    bool send_release(grant& held, bool& unknown);
    std::optional<strategy::handed_over> pass_on(sql::connection& db, grant& held,
                                                 sql::deadline until);
    void give_up_release(grant& held, const char* why) noexcept;
    void leave_unresolved(session& ours, const std::string& name, unresolved_grant what) noexcept;
    void confirm_release(grant& held);
    void deny_release(grant& held);
    std::int64_t next_id();
    [[nodiscard]] std::shared_ptr<session> current() const;
    void poke_heartbeat() noexcept;
    [[nodiscard]] steady::time_point failure_deadline(steady::time_point until) const;

    void declare_if_over(grant& held);

    // --- batching.cpp
    struct acquire_ask {
        strategy::grant_request request;
        std::optional<std::int64_t> known;  ///< the token at which this client last saw it free
        sql::deadline until;
    };
    struct release_ask {
        std::int64_t session = 0;
        strategy::granted_name granted;
        sql::deadline until;
    };
    struct look_ask {
        std::string_view name;
        sql::deadline until;
    };
    using acquires = detail::batcher<acquire_ask, strategy::attempt>;
    using releases = detail::batcher<release_ask, strategy::release_outcome>;
    using looks = detail::batcher<look_ask, bool>;
    std::optional<strategy::attempt> acquire_together(acquisition& call, sql::deadline until);
    void acquire_for(std::span<acquires::item* const> asked);
    void grant_all(sql::connection& db, std::span<acquires::item* const> asked, bool known,
                   sql::deadline until);
    bool still_held(const std::string& name, sql::deadline until);
    void look_for(std::span<looks::item* const> asked);
    std::optional<strategy::release_outcome> release_together(const grant& held,
                                                              sql::deadline until, bool& unknown);
    void release_for(std::span<releases::item* const> asked);

    // --- pipelined_release.cpp
    bool send_pipelined_release(const std::shared_ptr<grant>& held);
    void on_pipelined_answer(grant& held, const sql::result* done, const error* failure) noexcept;
    sql::connection_pool::borrowed take_connection(sql::deadline until, std::size_t spare = 0);
    /// One read connection beyond max_connections, for a thread whose own transaction may have
    /// locked what all threads with a connection wait for.
    sql::connection_pool::borrowed take_spare_connection(sql::deadline until) {
        return take_connection(until, 1);
    }
    bool drain_pipelined(const sql::connection* but, sql::deadline until) noexcept;

    // --- queueing.cpp
    std::shared_ptr<waiting_room> room();  ///< opened with the first call
    [[nodiscard]] std::shared_ptr<waiting_room> open_room() const noexcept;  ///< or null
    std::optional<std::shared_ptr<grant>> wait_in_queue(acquisition& call);
    std::shared_ptr<turn> take_place(acquisition& call, waiting_room& at, sql::connection& db,
                                     sql::deadline until);
    std::shared_ptr<grant> take_turn(const acquisition& call, const turn& served);
    std::shared_ptr<grant> grant_to(const turn& served, std::int64_t token, nanoseconds sent,
                                    std::optional<std::int64_t> deadline_us);
    void give_back(grant& unwanted) noexcept;
    void give_up(session& ours, const grant& lost) noexcept;
    void give_back(session& ours, const std::string& name, std::int64_t grant_id) noexcept;
    void refuted(grant& believed) noexcept;
    void after_release(sql::connection& db, const std::string& name,
                       const strategy::release_outcome& done, sql::deadline until) noexcept;
    void look_for_waiters(const std::string& name, bool reply_lost = false) noexcept;
    void look_for_waiters_soon(const std::string& name) noexcept;
    void look_for_waiters_after(std::int64_t ended_session) noexcept;
    void wake(sql::connection& db, const strategy::handed_over& next, sql::deadline until) noexcept;
    [[nodiscard]] bool is_near(const strategy::wake_address& session) const noexcept;
    void note_contended(const std::string& name);
    [[nodiscard]] bool is_contended(const std::string& name) const;
    void hand_on(std::vector<std::string> names, const std::vector<std::int64_t>& ended,
                 sql::deadline until) noexcept;
    [[nodiscard]] std::string thread_label() const;

    // --- hearing.cpp
    [[nodiscard]] base::worker::ears heartbeat_ears();
    nanoseconds open_ears(const session& ours, std::span<pollfd> on) noexcept;
    bool hear(session& ours) noexcept;
    void read_what_was_said(const session& ours, std::vector<std::string>& into);
    bool hear_of_change(session& ours, std::string_view said);
    [[nodiscard]] bool hears_notifications() const noexcept;
    void listen_with_heartbeat(const session& ours, sql::connection& db, sql::deadline until);
    void tell_holder(sql::connection& db, std::int64_t session, sql::deadline until) noexcept;

    // --- fence.cpp
    enum class standing : unsigned char { ours, over, session_over, unknown };
    using fence_step = strategy::verdict (strategy::fencing::*)(sql::connection&,
                                                                const strategy::claim&,
                                                                const strategy::fence_limits&,
                                                                sql::deadline) const;
    void in_transaction(sql::connection& db, grant& held, const fence_options& options,
                        fence_step step);
    void require_fenceable(grant& held);
    [[nodiscard]] standing look_up(const grant& held, sql::deadline until) noexcept;
    [[nodiscard]] bool is_elsewhere(sql::connection& db, sql::deadline until) noexcept;
    [[noreturn]] void refuse(sql::connection& db, grant& held, strategy::verdict seen,
                             sql::deadline until);
    void hold_again(grant& fenced, unsigned releases_before);

    // --- slow_link.cpp
    void note_round_trip(nanoseconds took) noexcept;
    [[nodiscard]] nanoseconds round_trip() const noexcept { return nanoseconds{round_trip_}; }
    [[nodiscard]] nanoseconds beat_period() const noexcept;
    [[nodiscard]] nanoseconds late_at(const session& ours) const noexcept;
    [[nodiscard]] nanoseconds start_second_heartbeat(const session& ours, nanoseconds now) noexcept;
    nanoseconds beat_late() noexcept;
    enum class beaten : unsigned char { confirmed, again, later };
    beaten beat_elsewhere(session& ours);
    void beat_if_late(session& ours, sql::connection& db, sql::deadline until);
    void warn_of_short_ttl(nanoseconds opening) noexcept;

    // --- upkeep.cpp
    nanoseconds beat() noexcept;
    nanoseconds beat(session& ours);
    [[nodiscard]] nanoseconds first_connection_at(const session& ours) const;
    [[nodiscard]] bool beat_is_due(const session& ours, nanoseconds now) const;
    beaten send_beat(session& ours, sql::connection& db, sql::deadline until);
    nanoseconds after_failed_beat(session& ours, const std::exception& failure) noexcept;
    void after_beat(session& ours, sql::deadline until);
    bool hear_requests(session& ours, sql::connection& db, sql::deadline until);
    void compare_if_wanted(session& ours, sql::deadline until);
    void compare_held(session& ours, sql::deadline until);
    void compare_with_database(session& ours, sql::deadline until);
    void raise_floor_past(const grant& lost, sql::deadline until);
    void put_off() noexcept;
    void give_up_strays(session& ours, sql::deadline until);
    void resolve_unknown(session& ours, sql::deadline until);
    void resolve(session& ours, const unresolved_grant& unknown, sql::deadline until);
    void fail_waiters(std::string_view name, const error& why);
    void give_back_stray(session& ours, const strategy::session_lease& row, sql::deadline until);
    [[nodiscard]] nanoseconds pause_after_failure() noexcept;
    std::vector<std::int64_t> end_lost_sessions(sql::deadline until);
    struct lost_session;
    [[nodiscard]] nanoseconds end_at(const lost_session& lost, nanoseconds now) const;
    [[nodiscard]] nanoseconds next_end() const;
    void begin_margin(std::int64_t lost) noexcept;
    void drop_heartbeat_connection() noexcept;
    sql::connection& heartbeat_connection(sql::deadline until);
    [[nodiscard]] sql::deadline heartbeat_deadline(const session& ours) const;
    nanoseconds watch() noexcept;
    nanoseconds watch_deadlines(nanoseconds now);
    void clear_row(grant& passed) noexcept;
    nanoseconds reap_once() noexcept;
    void lose_session(session& ours, loss_reason why) noexcept;
    bool lose(grant& lost, loss_reason why, grant::state from = grant::state::held) noexcept;
    using rank = sql::shared_connection::rank;
    [[nodiscard]] std::unique_ptr<sql::connection> make_connection(sql::deadline until,
                                                                   rank who = rank::usual);
    [[nodiscard]] std::unique_ptr<sql::connection> connect(sql::deadline until);
    /// Whether the whole client shares one connection.
    [[nodiscard]] bool shares() const noexcept {
        return options_.single_connection && source_.speaks() != sql::dialect::sqlite;
    }
    void require_same_server(sql::connection& db, sql::deadline until);
    [[nodiscard]] bool leads_elsewhere(sql::connection& db) const;
    [[nodiscard]] loss_reason why_over(const session& ours) noexcept;
    [[nodiscard]] loss_reason why_over(const session& ours, sql::connection& db,
                                       sql::deadline until) const noexcept;
    void connection_broke() noexcept;
    void renew_connections() noexcept;
    void let_heartbeat_hear() noexcept;
    bool end_own_session(session& ours, const std::vector<std::int64_t>& places,
                         std::vector<std::string>& names, sql::deadline until);

    void count(counter which, std::uint64_t by = 1) noexcept {
        counters_[static_cast<std::size_t>(which)].fetch_add(by, std::memory_order_relaxed);
    }
    void report(event_kind kind, const grant& about, std::string message = {},
                std::chrono::microseconds waited = {}) noexcept;
    [[nodiscard]] nanoseconds statement_bound() const;

    const base::fork_guard fork_;
    client_options options_;
    const sql::connection_source source_;
    const base::clock clock_;
    const sql::statement_set statements_;
    const std::unique_ptr<const strategy::lease_protocol> protocol_owned_;
    const strategy::lease_protocol& protocol_;
    const std::unique_ptr<const strategy::queue_protocol> queue_owned_;
    const strategy::queue_protocol& queue_;
    const std::unique_ptr<const strategy::batch_protocol> batch_owned_;
    const strategy::batch_protocol& batch_;
    const std::unique_ptr<const strategy::fencing> fencing_owned_;
    const strategy::fencing& fencing_;
    const std::size_t budget_;       ///< usual limit of pool_
    sql::shared_connection shared_;  ///< if shares(): used by all members below
    sql::connection_pool pool_;
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(counter::count_of_counters)>
        counters_{};
    base::random_ids ids_;  ///< for grants and gates
    token_cache names_;
    pipelined_releases posted_;
    acquires acquires_;
    releases releases_;
    looks looks_;

    mutable std::mutex state_mutex_;
    /// No session or room may be opened any more. close() sets this before it takes either's mutex,
    /// or under it; a thread that opens one reads it under that mutex.
    std::atomic<bool> closing_{false};
    bool opening_ = false;  ///< one thread opens a session, the others wait for it
    std::condition_variable opened_;
    bool schema_checked_ = false;  ///< used by the opening thread alone
    std::shared_ptr<session> current_;
    /// A session that this client declared lost and that may still live in the database.
    struct lost_session {
        std::shared_ptr<session> which;
        nanoseconds not_before;  ///< unless no holder is left: end of the margin since its loss
        nanoseconds expired_by;  ///< the database sees it expired from then on
    };
    std::vector<lost_session> to_end_;
    struct own_deadline {
        std::weak_ptr<grant> of;
        bool lost = false;  ///< already declared lost; next, its row is cleared
    };
    /// Deadlines of leases that have their own, by time and grant id.
    std::map<std::pair<nanoseconds, std::int64_t>, own_deadline> deadlines_;
    std::unordered_map<std::string, std::weak_ptr<hold>> holds_;
    /// Names that had a waiter at this client's last release, and until when it expects another.
    std::unordered_map<std::string, steady::time_point> contended_;

    std::mutex pause_mutex_;
    std::condition_variable_any pause_;

    std::unique_ptr<sql::connection> heartbeat_db_;
    std::mutex reclaiming_;  ///< reclaim(): rows are ours before their grants are known
    std::atomic<bool> compare_wanted_{false};
    std::atomic<bool> heartbeat_connected_{false};
    bool heartbeat_was_connected_ = false;
    bool heartbeat_is_brief_ = false;             ///< heartbeat_db_ has a short lock timeout
    bool resolve_last_ = false;                   ///< resolving broke the connection last time
    nanoseconds row_patience_ = strategy::brief;  ///< for one heartbeat task, on SQLite
    bool put_off_ = false;                        ///< a task did not fit into row_patience_
    int failed_beats_ = 0;
    std::atomic<nanoseconds::rep> round_trip_{0};  ///< measured; 0: not yet
    bool warned_of_ttl_ = false;                   ///< heartbeat thread only
    nanoseconds no_idle_since_{0};                 ///< second heartbeat only
    // Heartbeat thread only, for notifications to a holder.
    nanoseconds deaf_until_{0};                ///< after useless notifications
    std::atomic<bool> unheard_{false};         ///< another user may have read notifications
    std::int64_t heartbeat_listens_for_ = 0;   ///< session id, on heartbeat_db_
    bool heartbeat_may_listen_ = true;         ///< heartbeat_db_ may receive our notifications
    std::optional<bool> heartbeat_is_direct_;  ///< no pooler is in between

    base::event_queue events_;
    base::loss_notifier signals_;
    std::unique_ptr<base::worker> heartbeat_;
    std::unique_ptr<base::worker> second_heartbeat_;  ///< from the first late heartbeat on
    std::unique_ptr<base::worker> watchdog_;
    std::unique_ptr<base::worker> reaper_;
    std::stop_source reaping_;

    mutable std::mutex room_mutex_;
    std::shared_ptr<waiting_room> room_;
};

}  // namespace rowlock::detail
