#pragma once

#include "base/clock.hpp"
#include "lock/queue/loop_parts.hpp"
#include "lock/queue/poll_pacing.hpp"
#include "lock/queue/waiter_loop.hpp"
#include "lock/queue/waiter_registry.hpp"
#include "lock/queue/waiter_tasks.hpp"
#include <rowlock/ids.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// The threads of a client that wait for leases, and the loop that works for them: each sleeps on
/// its own `waiter`, and one thread with one connection receives notifications, polls all queues of
/// the client in one statement, grants free leases to the next waiter, deletes entries that are
/// given up, and checks for waiters after releases. Thread-safe.
class waiting_threads {
public:
    using steady = std::chrono::steady_clock;

    /// Parts of the client that outlive it.
    struct surroundings {
        client_context& context;
        session_registry& sessions;
        client_connections& connections;
        grant_lifecycle& grants;
        session_keeper& keeper;
        contended_names& contended;
        waiters& owner;
        base::clock clock{};  ///< of the loop
    };
    /// @throws error errc::out_of_resources
    explicit waiting_threads(const surroundings& with);
    waiting_threads(const waiting_threads&) = delete;
    waiting_threads& operator=(const waiting_threads&) = delete;
    /// Waits for the running step: at most one statement deadline.
    ~waiting_threads();

    // --- the waiting thread
    /// Call before the ticket is sent: from then on it may be served.
    std::shared_ptr<waiter> expect(std::string name, grant_id grant_id,
                                   std::shared_ptr<session> ours, std::string thread,
                                   std::optional<std::chrono::milliseconds> max_duration,
                                   const protocol::wanted_permits& permits = {},
                                   std::string blocks = {}, std::vector<waiter::place> also = {}) {
        return registry_.expect(std::move(name), grant_id, std::move(ours), std::move(thread),
                                max_duration, permits, std::move(blocks), std::move(also));
    }
    /// The ticket is in the queue.
    void enqueued(waiter& which);
    /// The ticket was not sent, or that is unknown. Returns false if it was served all the same.
    bool withdraw(waiter& which) noexcept { return registry_.withdraw(which); }
    /// Sleeps until the wait is over, or until `until` or `stop` ends it: then for no more than
    /// 40 ms longer, and a grant that comes afterwards is given back. Returns true if it is over.
    bool wait(const std::shared_ptr<waiter>& which, steady::time_point until,
              const std::stop_token& stop);
    /// For a thread that waits for several leases: as wait(), but it also returns true when it may
    /// be its turn. Then it takes them, if it can, between begin_taking() and end_taking().
    bool wait_for_turn(const std::shared_ptr<waiter>& which, steady::time_point until,
                       const std::stop_token& stop);
    /// Ends its sleep, or the next one.
    void call(waiter& which) noexcept { registry_.call(which); }
    void begin_taking(waiter& which) noexcept { registry_.set_taking(which, true); }
    /// It has taken them: the wait is over. Returns false if it was over before.
    bool taken(waiter& which) {
        return registry_.end(which, waiter::state::served, [] {});
    }
    void end_taking(waiter& which) noexcept { registry_.set_taking(which, false); }
    [[nodiscard]] bool is_over(const waiter& which) const noexcept {
        return registry_.is_over(which);
    }
    /// Gives up without waiting for the answer.
    void leave(waiter& which) noexcept { registry_.leave(which); }

    // --- reports of other threads
    /// A grant to our session, read from the reply that confirmed its commit.
    void handed_over(const protocol::handed_over& next);
    /// A commit that has returned freed a lock or a part of it.
    /// @param looked whether it has looked for waiters
    void freed(std::string_view name, bool looked) {
        tasks_.check_for_waiters(name, looked, parts_.now());
    }
    /// See waiter_tasks, as the next two.
    [[nodiscard]] std::optional<std::uint64_t> defer_check(const std::string& name) {
        return tasks_.defer_check(name, parts_.now());
    }
    void withdraw_check(const std::string& name, std::uint64_t number) {
        tasks_.withdraw_check(name, number, parts_.now());
    }
    void hasten_check(const std::string& name, std::uint64_t number) {
        if (tasks_.hasten_check(name, number, parts_.now())) alarm_.poke();
    }
    /// The lease was seen to be free, and a thread waits for it: it is served, then all are polled.
    void serve_now(const std::string& name) {
        tasks_.serve(name, parts_.now());
        poll_soon();
    }
    /// A transaction that is still open will free it soon.
    void freed_soon(std::string_view name) { tasks_.check_for_a_while(name, parts_.now()); }
    /// A commit that has returned ended a session.
    void session_ended(session_id id) { tasks_.session_ended(id); }
    /// Our session is lost: all waits in it fail.
    void session_lost(session_id id, loss_reason why) noexcept;
    /// Fails the threads that wait for this name with this error.
    void fail(const error& failure, std::string_view name) { loop_.fail(failure, name); }
    /// Something changed that has no known name: all entries are polled.
    void poll_soon() noexcept;
    /// The holder of a lease that a thread waits for has so long left: if that is over before the
    /// thread's first poll, all entries are polled then.
    void holder_expires_in(nanoseconds left) noexcept;
    /// A statement of another thread may have read notifications; or a new session's mailbox is to
    /// be read.
    void listen_again() const noexcept { alarm_.poke(); }

    // --- questions
    /// Threads that wait, without those that gave up and left.
    [[nodiscard]] std::size_t waiting() const { return registry_.waiting(); }
    [[nodiscard]] std::size_t connections() const { return loop_.rounds().connections(); }

    /// Begins no further step. close() fails the threads that still wait.
    void stop() noexcept { loop_.stop(); }
    /// Work left after the loop has ended, for another connection.
    struct leftovers {
        bool has_entries = false;           ///< of threads that waited to the end
        std::vector<std::string> names{};   ///< to be checked for waiters
        std::vector<std::string> queues{};  ///< to be served
        std::vector<session_id> sessions{};
    };
    leftovers close() noexcept;

private:
    [[nodiscard]] waiter_registry::hooks registry_hooks();

    const base::clock clock_;
    base::alarm alarm_;
    waiter_registry registry_;
    waiter_tasks tasks_;
    poll_pacing pacing_;
    const loop_parts parts_;
    std::shared_ptr<void> subscription_;  ///< to a test's clock
    waiter_loop loop_;
};

}  // namespace rowlock::detail
