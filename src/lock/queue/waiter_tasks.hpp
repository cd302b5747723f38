#pragma once

#include "lock/queue/task_list.hpp"
#include "lock/queue/waiter.hpp"
#include <rowlock/ids.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// What the waiters' loop has to do for the queues of this client and of others, and when. A task
/// stays here until it is done: one that failed is planned again. Reads no clock and sends no
/// statement. Thread-safe.
class waiter_tasks {
public:
    using due_names = std::vector<std::pair<std::string, task>>;

    /// A grant that a hint reported.
    struct unverified {
        std::shared_ptr<waiter> which{};
        std::shared_ptr<grant> granted{};  ///< null: it must be verified before it is believed
        std::int64_t token = 0;
        nanoseconds at{0};     ///< when to verify it
        bool durably = false;  ///< its commit may not have reached the disk
    };

    /// @param on_work wakes the loop. Called with the mutex held: must not call this object
    explicit waiter_tasks(std::function<void()> on_work) : on_work_{std::move(on_work)} {}

    // --- plan
    /// A commit that has returned freed a lock or a part of it: it is checked for waiters.
    /// @param looked whether it has looked for them, so that the check hardly ever finds one
    void check_for_waiters(std::string_view name, bool looked, nanoseconds now);
    /// The same, at once. Does not wake the loop, whose thread most often is the caller.
    void check_now(const std::string& name, nanoseconds now);
    /// For a client that is about to acquire the lease itself, by a statement that asks for
    /// waiters: defers the check that a release has planned, for as long as a statement usually
    /// takes. Once: a check is not deferred by one attempt after the other. Returns its number, if
    /// there is one.
    [[nodiscard]] std::optional<std::uint64_t> defer_check(const std::string& name,
                                                           nanoseconds now);
    /// It was granted: no waiter was there after the release, and the next release plans its own.
    void withdraw_check(const std::string& name, std::uint64_t number, nanoseconds now);
    /// It was not: the check is due. Returns whether the loop must be woken.
    [[nodiscard]] bool hasten_check(const std::string& name, std::uint64_t number, nanoseconds now);
    /// A transaction that is still open will free it soon: checks several times.
    void check_for_a_while(std::string_view name, nanoseconds now);
    /// The first waiter of this queue can be served, or may be. For the loop's thread: does not
    /// wake it.
    /// @param expected what that waiter most likely wants
    void serve(std::string name, nanoseconds now,
               protocol::queue_head expected = protocol::queue_head::sole);
    /// A commit that has returned ended a session.
    void session_ended(session_id id);
    /// Does not wake the loop, which most often is the caller.
    void verify(unverified grant);
    /// A wake-up came that does not say which entry was served.
    void read_served() noexcept;

    // --- take
    /// When the next task is due; 0 if at once, never if there is none. For the loop's thread,
    /// before it sleeps: checks that are planned for later do not wake it.
    [[nodiscard]] nanoseconds next_due() noexcept;
    [[nodiscard]] bool take_read_served() noexcept;
    [[nodiscard]] due_names take_checks(nanoseconds now);
    /// The checks were made: plans their repetitions.
    /// @param found whether a waiter was found
    void checked(const due_names& done, bool found, nanoseconds now);
    void retry_checks(const due_names& failed);
    /// Waiters poll for themselves.
    void forget_checks() noexcept;
    [[nodiscard]] due_names take_names_to_serve(nanoseconds now);
    void retry_serving(const std::string& name, const task& when);
    /// A session that has ended, until session_done().
    [[nodiscard]] std::optional<session_id> next_ended_session() const noexcept;
    /// Its holds are swept, and its queues planned; its entries can be deleted.
    void session_done(session_id id) noexcept;
    /// A session whose entries are to be deleted, until entries_deleted().
    [[nodiscard]] std::optional<session_id> next_session_with_entries() const noexcept;
    void entries_deleted(session_id id) noexcept;
    /// A grant to be verified now, until verified().
    [[nodiscard]] std::optional<unverified> next_unverified(nanoseconds now) const;
    void verified(const unverified& done) noexcept;

    /// Work that is left for another connection, once the loop has ended.
    struct leftovers {
        std::vector<std::string> names{};   ///< to be checked for waiters
        std::vector<std::string> queues{};  ///< to be served
        std::vector<session_id> sessions{};
    };
    [[nodiscard]] leftovers close() noexcept;

private:
    using guard = std::lock_guard<std::mutex>;

    const std::function<void()> on_work_;
    mutable std::mutex mutex_;
    task_list checks_;
    nanoseconds empty_check_{0};                 ///< when a check found no waiter, or was withdrawn
    nanoseconds wakes_at_ = base::alarm::never;  ///< the loop, as far as is known here
    task_list to_serve_;
    std::vector<session_id> ended_;
    std::vector<session_id> with_entries_;  ///< ended; they may have entries left
    std::vector<unverified> unverified_;
    bool read_served_ = false;
};

}  // namespace rowlock::detail
