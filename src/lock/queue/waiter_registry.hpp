#pragma once

#include "lock/queue/waiter.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// The threads of one client that wait for leases, by the grant ids of their queue entries. It
/// knows what became of each wait; it neither reads the time nor sends a statement. Thread-safe.
class waiter_registry {
public:
    using steady = std::chrono::steady_clock;

    /// What the database says of an entry that was served.
    struct served_entry {
        std::int64_t token = 0;
        nanoseconds sent{0};  ///< when the statement was sent that read the next line
        std::optional<std::int64_t> deadline_us{};  ///< what is left of the lease's own deadline
    };
    struct hooks {
        /// Called with the mutex held: must not call the registry.
        std::function<std::shared_ptr<grant>(const waiter&, const served_entry&)> make_grant;
        /// No thread wants this grant.
        std::function<void(grant&)> give_back;
        /// There is something to do for the loop.
        std::function<void()> on_work;
    };

    explicit waiter_registry(hooks use) : hooks_{std::move(use)} {}

    // --- the waiting thread
    /// Call before the ticket is sent: from then on it may be served.
    std::shared_ptr<waiter> expect(std::string name, grant_id grant_id,
                                   std::shared_ptr<session> ours, std::string thread,
                                   std::optional<std::chrono::milliseconds> max_duration,
                                   const protocol::wanted_permits& permits = {},
                                   std::string blocks = {}, std::vector<waiter::place> also = {});
    /// The ticket is in the queue. Returns false if the wait is over already.
    bool enqueued(waiter& which) noexcept;
    /// The ticket was not sent, or that is unknown. Returns false if it was served all the same.
    bool withdraw(waiter& which) noexcept;
    /// Sleeps until the wait is over, or until `until` or `stop` ends it. Returns true if it is
    /// over.
    bool wait(waiter& which, steady::time_point until, const std::stop_token& stop);
    /// For a thread that waits for several leases: sleeps as wait(), and until it may be its turn.
    /// Returns whether one of the two ended the sleep.
    bool wait_for_turn(waiter& which, steady::time_point until, const std::stop_token& stop);
    /// The thread begins, or ends, to take its several leases itself.
    void set_taking(waiter& which, bool takes) noexcept;
    /// Has the entry deleted, unless the wait is over.
    void give_up(const std::shared_ptr<waiter>& which);
    /// After give_up(): waits for the answer, but not for long. Returns false if there is none; a
    /// grant that comes afterwards is unwanted.
    bool wait_for_answer(waiter& which, std::chrono::nanoseconds patience);
    /// Gives up without waiting for the answer.
    void leave(waiter& which) noexcept;

    // --- what became of a wait
    /// Makes the grant, so that a comparison with the database knows it from now on, and notifies
    /// its thread. If that thread has left, the grant is unwanted. Does nothing if the wait is
    /// over.
    void serve(waiter& which, const served_entry& found);
    /// Ends the wait, unless it is over; `first` is called before that with the mutex held. Returns
    /// false if it was over.
    template <std::invocable First>
    bool end(waiter& which, waiter::state how, First&& first) {
        const std::lock_guard lock{mutex_};
        if (which.over()) return false;
        std::forward<First>(first)();
        end_locked(which, how);
        return true;
    }
    /// It may be the turn of a thread that waits for several leases.
    void call(waiter& which) noexcept;
    /// Fails one wait, unless it is over.
    void fail(waiter& which, const error& failure) noexcept;
    /// Fails all waits for one name, or all, and returns them.
    std::vector<std::shared_ptr<waiter>> fail_all(const error& failure,
                                                  std::optional<std::string_view> only);
    /// Fails all waits in a session that is lost.
    void session_lost(session_id id, const error* why) noexcept;
    /// A poll saw the entry at this position. Returns false if that is nothing new.
    bool moved(waiter& which, std::int64_t position) noexcept;

    // --- work for the loop
    /// Whether an entry is to be deleted, or a grant to be given back.
    [[nodiscard]] bool has_work() const noexcept;
    /// Takes the waiters whose entries are to be deleted.
    [[nodiscard]] std::vector<std::shared_ptr<waiter>> take_given_up();
    /// The deletion failed: all that gave up are taken again the next time.
    void retry_given_up() noexcept;
    /// Takes the grants that served threads which had left.
    [[nodiscard]] std::vector<std::shared_ptr<grant>> take_unwanted() noexcept;
    /// Removes the grant from the unwanted ones. Returns false if it was not among them.
    bool erase_unwanted(const waiter& which) noexcept;

    // --- questions
    /// Null if no thread waits for this grant.
    [[nodiscard]] std::shared_ptr<waiter> find(grant_id grant_id) const;
    [[nodiscard]] std::shared_ptr<grant> granted(const waiter& which) const noexcept;
    [[nodiscard]] bool is_over(const waiter& which) const noexcept;
    [[nodiscard]] bool has_left(const waiter& which) const noexcept;
    [[nodiscard]] bool is_giving_up(const waiter& which) const noexcept;
    /// Whether its entries may be gone because its thread is taking the leases.
    [[nodiscard]] bool is_taking(const waiter& which) const noexcept;
    [[nodiscard]] bool empty() const noexcept;
    /// Threads that wait, without those that gave up and left.
    [[nodiscard]] std::size_t waiting() const;
    /// The session of a waiter, 0 if there is none. All are of one session, except while one is
    /// being lost.
    [[nodiscard]] session_id waiting_session() const noexcept;
    /// The waiters whose ticket is in the queue and that have not given up.
    [[nodiscard]] std::vector<std::shared_ptr<waiter>> queued() const;
    /// All waiters of one session.
    [[nodiscard]] std::vector<std::shared_ptr<waiter>> of_session(session_id id) const;
    /// Positions of the entries, and how fast they move. Called with the mutex held.
    template <std::invocable<const waiter&> Use>
    void for_each(Use&& use) const {
        const std::lock_guard lock{mutex_};
        for_each_once([&](const std::shared_ptr<waiter>& each) { use(*each); });
    }

    /// Fails all waits, and all that begin from now on. Returns whether there were any: their
    /// entries may still be in the queues.
    bool close() noexcept;

private:
    /// With the mutex held. One that waits in several queues is listed under each of its ids.
    template <typename Use>
    void for_each_once(Use use) const {
        for (const auto& [grant_id, each] : waiters_) {
            if (grant_id == each->grant_id) use(each);
        }
    }
    void erase_locked(const waiter& which) noexcept;
    void end_locked(waiter& which, waiter::state how, const error* why = nullptr) noexcept;

    const hooks hooks_;
    mutable std::mutex mutex_;
    /// By grant id, and by those of its further queues.
    std::unordered_map<grant_id, std::shared_ptr<waiter>> waiters_;
    std::vector<std::shared_ptr<waiter>> given_up_;
    /// There was no memory for that list: the entries of all that gave up are to be deleted.
    bool all_given_up_ = false;
    std::vector<std::shared_ptr<grant>> unwanted_;  ///< served to threads that had left
    bool closed_ = false;
};

}  // namespace rowlock::detail
