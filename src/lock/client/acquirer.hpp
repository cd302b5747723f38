#pragma once

#include "lock/client/acquisition.hpp"
#include "lock/client/call_batches.hpp"
#include "lock/client/call_parts.hpp"
#include "lock/client/token_cache.hpp"
#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/retry_loop.hpp"
#include "lock/session/session_keeper.hpp"
#include "lock/session/session_registry.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rowlock::detail {

struct multi_acquisition;

/// Acquires leases: an attempt, most often batched; then, if another client holds the lease, a
/// place in its queue. acquirer.cpp: the rounds of a call. queueing.cpp: waiting.
/// multi_acquiring.cpp: both for several locks at once. Thread-safe.
class acquirer {
public:
    using steady = std::chrono::steady_clock;

    explicit acquirer(const call_parts& with)
        : context_{with.context},
          connections_{with.connections},
          sessions_{with.sessions},
          keeper_{with.keeper},
          retries_{with.retries},
          grants_{with.grants},
          batches_{with.batches},
          waiting_{with.waiting},
          tokens_{with.tokens} {}

    /// Returns null if `until` passes or a stop is requested first.
    /// @param permits of the semaphore or shared_mutex `name`; none: the lease
    /// @param priority of the queue entry, for an election
    /// @param withheld until the caller clears grant::withheld
    std::shared_ptr<grant> acquire(const lock_name& name, steady::time_point until,
                                   const std::stop_token& stop, const acquire_options& options,
                                   const protocol::wanted_permits& permits = {},
                                   const std::string& shared_label = {}, int priority = 0,
                                   bool withheld = false);

    /// Whether a thread of this client holds a lock of that name, of any kind.
    [[nodiscard]] bool holds(const lock_name& name) const;

    using grants = std::vector<std::shared_ptr<grant>>;
    /// The grants of all locks, in byte order of the names; none if `until` passes or a stop is
    /// requested first. multi_acquiring.cpp.
    /// @param wanted at most most_names
    grants acquire_several(std::vector<wanted_lock> wanted, steady::time_point until,
                           const std::stop_token& stop, const acquire_options& options);

private:
    /// Of one round of a call: the lease, null if the caller's time is up or a stop was requested,
    /// or nullopt: ask again.
    using answer = std::optional<std::shared_ptr<grant>>;
    class owed_check;

    void choose_approach(acquisition& call) const;
    std::shared_ptr<grant> ask_until_over(acquisition& call);
    grants ask_until_over(multi_acquisition& all);
    answer ask(acquisition& call);
    std::optional<protocol::attempt> attempt(acquisition& call);
    answer after_attempt(acquisition& call, const protocol::attempt& made);
    answer wait_for_holder(acquisition& call, const protocol::lease_probe& seen);
    answer go_on(acquisition& call);
    [[nodiscard]] bool outlasts(const acquisition& call, const error& failure) const;
    bool wait_to_ask_again(acquisition& call, const error& failure);
    bool rest_before_asking_again(acquisition& call, bool session_over);
    [[nodiscard]] retry_loop::limits limits_of(const acquisition& call) const;

    std::optional<protocol::attempt> attempt_together(acquisition& call, sql::deadline until);
    protocol::attempt attempt_alone(acquisition& call, sql::connection& db, sql::deadline until);
    std::optional<protocol::attempt> find_lost_attempt(acquisition& call, sql::connection& db,
                                                       sql::deadline until);
    std::optional<protocol::attempt> probe(acquisition& call, sql::connection& db,
                                           sql::deadline until);
    protocol::attempt send(acquisition& call, sql::connection& db, sql::deadline until);
    void look_for_ended(acquisition& call, protocol::attempt& found, sql::deadline until);
    static bool may_have_ended(const protocol::attempt& found);
    void take_back(acquisition& call, sql::connection& db, protocol::attempt& found,
                   sql::deadline until);
    static bool may_fit(acquisition& call, const waiters::taken_back& seen, std::int64_t permits);
    void end_expired(sql::connection& db, session_id session, sql::deadline until);
    std::shared_ptr<grant> accept(acquisition& call, const protocol::attempt& granted);
    /// Whether the grants of the call's attempt were ended while its answer was under way.
    /// @param find reads them again, on a connection; whether they are there
    template <typename Find>
    bool was_ended(const acquisition& call, Find find) noexcept;
    void report_acquired(const acquisition& call, const grant& made, bool served = false);
    void require_timely(acquisition& call) const;
    bool sleep_until_probe(acquisition& call, const protocol::lease_probe& seen);
    bool pause_before_retry(acquisition& call);

    answer wait_in_queue(acquisition& call);
    std::shared_ptr<waiter> enqueue(acquisition& call, waiting_threads& at, sql::connection& db,
                                    sql::deadline until);
    void look_once(acquisition& call, waiting_threads& at,
                   std::optional<protocol::lease_glance> seen, sql::connection& db,
                   sql::deadline until);
    std::shared_ptr<waiter> expect_waiter(acquisition& call, waiting_threads& at);
    std::shared_ptr<grant> accept_served(const acquisition& call, const waiter& served);

    void refuse_reentry(const multi_acquisition& all) const;
    void refuse_reentry(const acquisition& call) const;
    static bool is_held_by_thread(const grant& held, const std::string& thread);
    void take_back(multi_acquisition& all, sql::connection& db, protocol::multi_attempt& found,
                   sql::deadline until);
    std::optional<grants> ask(multi_acquisition& all);
    std::optional<grants> go_on_for_all(acquisition& call);
    protocol::multi_attempt attempt_all(multi_acquisition& all, sql::connection& db,
                                        sql::deadline until);
    protocol::multi_attempt take_all(multi_acquisition& all, bool queued, sql::connection& db,
                                     sql::deadline until);
    std::optional<protocol::multi_attempt> find_all(multi_acquisition& all, sql::connection& db,
                                                    sql::deadline until);
    grants accept_all(multi_acquisition& all, const protocol::multi_attempt& made);
    std::optional<grants> wait_for_holders(multi_acquisition& all,
                                           const protocol::multi_attempt& seen);
    std::optional<grants> wait_in_queues(multi_acquisition& all);
    std::optional<protocol::multi_attempt> wait_for_turn(multi_acquisition& all,
                                                         waiting_threads& at,
                                                         const std::shared_ptr<waiter>& mine);
    std::shared_ptr<waiter> enqueue(multi_acquisition& all, waiting_threads& at,
                                    sql::connection& db, sql::deadline until);
    void abandon(const multi_acquisition& all, waiting_threads& at, waiter& mine,
                 bool sent) noexcept;
    std::optional<protocol::multi_attempt> take_turn(multi_acquisition& all, waiting_threads& at,
                                                     waiter& mine);

    [[nodiscard]] std::string thread_label() const;
    void name_blocked(acquisition& call) const;
    /// Whether all threads of the client are one party of the wait graph.
    [[nodiscard]] bool is_one_party() const noexcept {
        return context_.options.deadlock_detection == deadlock_detection::by_client;
    }

    client_context& context_;
    client_connections& connections_;
    session_registry& sessions_;
    session_keeper& keeper_;
    retry_loop& retries_;
    grant_lifecycle& grants_;
    call_batches& batches_;
    client_waiters& waiting_;
    token_cache& tokens_;
};

/// A heartbeat that was refused has read the rows of our session. If it did so while the answer to
/// the attempt was under way, it did not know these grants, which another client may have ended:
/// then the rows are read again. If that fails, they count as ended. A look that begins from here
/// on knows the grants.
template <typename Find>
bool acquirer::was_ended(const acquisition& call, Find find) noexcept {
    if (call.ours->news().looks == call.looks_before) return false;
    try {
        const auto until = context_.statement_deadline();
        return !find(*connections_.take(until), until);
    } catch (const std::exception&) {
        return true;
    }
}

}  // namespace rowlock::detail
