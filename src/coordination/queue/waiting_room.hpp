#pragma once

#include "base/clock.hpp"
#include "coordination/queue/contended_names.hpp"
#include "coordination/queue/poll_pacing.hpp"
#include "coordination/queue/queue_protocol.hpp"
#include "coordination/queue/task_list.hpp"
#include "coordination/queue/turn.hpp"
#include "coordination/session/session_keeper.hpp"
#include "coordination/session/waiters.hpp"
#include "coordination/wakeup/mailbox.hpp"
#include "coordination/wakeup/mysql_wait_thread.hpp"
#include "sql/brief_wait.hpp"
#include <rowlock/options.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace rowlock::detail {

/// Where the threads of a client wait for their turns: each sleeps on its own turn, and one thread
/// with one connection works for all of them. It receives notifications, polls all queues of the
/// client in one statement, grants free leases to the next waiter, deletes entries that are given
/// up, and checks for waiters after releases.
///
/// No lock is held over a round trip. A task stays on its list until it is done: a statement that
/// failed is sent again. waiting_room.cpp: what other threads call. room_rounds.cpp: the thread.
///
/// It runs on the real clock, also where a test replaced the client's.
class waiting_room {
public:
    using steady = std::chrono::steady_clock;
    using microseconds = std::chrono::microseconds;

    /// A hand-over wakes a dozen threads and server processes. Work that can wait lets them run
    /// first: the first poll of an entry whose lease was just handed to another waiter, and the
    /// verification of a grant.
    static constexpr std::chrono::nanoseconds rush = std::chrono::microseconds{300};

    /// Parts of the client that outlive it.
    struct surroundings {
        client_context& context;
        session_registry& sessions;
        client_connections& connections;
        grant_lifecycle& grants;
        session_keeper& keeper;
        contended_names& contended;
        waiters& owner;
    };
    /// @throws error errc::out_of_resources
    explicit waiting_room(const surroundings& with);
    waiting_room(const waiting_room&) = delete;
    waiting_room& operator=(const waiting_room&) = delete;
    /// Waits for the running step: at most one statement deadline.
    ~waiting_room();

    // --- queueing
    /// Call before the ticket is sent: from then on it may be served.
    std::shared_ptr<turn> expect(std::string name, std::int64_t grant_id,
                                 std::shared_ptr<session> ours, std::string thread,
                                 bool has_deadline);
    /// The ticket is in the queue.
    void enqueued(const std::shared_ptr<turn>& which);
    /// The ticket was not sent, or that is unknown. Returns false if it was served all the same.
    bool withdraw(const std::shared_ptr<turn>& which);
    /// Sleeps until the turn is over, or until `until` or `stop` ends the wait: then for no more
    /// than 40 ms longer, and a grant that comes afterwards is given back. Returns true if the turn
    /// is over.
    bool wait(const std::shared_ptr<turn>& which, steady::time_point until,
              const std::stop_token& stop);

    /// Gives up without waiting for the answer.
    void leave(turn& which) noexcept;

    // --- reports of other threads
    /// A grant to our session, read from the reply that confirmed its commit.
    void handed_over(const strategy::handed_over& next);
    /// A commit that has returned freed a lease.
    void look(std::string_view name);
    /// A transaction that is still open will free it soon: checks several times.
    void look_for_a_while(std::string_view name);
    /// A commit that has returned ended a session.
    void session_ended(std::int64_t id);
    /// Our session is lost: all turns in it fail.
    void session_lost(std::int64_t id, loss_reason why) noexcept;
    /// Fails all waiting threads with this error, or those that wait for `name`.
    void fail(const error& failure, std::optional<std::string_view> name = {});
    void look_at_all() noexcept;  ///< something changed that has no known name
    /// A statement of another thread may have read notifications; or a new session's mailbox is to
    /// be read.
    void listen_again() const noexcept { poke(); }
    /// Whether the room's connection receives notifications to this session (PostgreSQL).
    [[nodiscard]] bool listens_for(std::int64_t session) const noexcept {
        return listening_for_ == session;
    }

    /// Threads that wait, without those that gave up and left.
    [[nodiscard]] std::size_t waiting() const;
    [[nodiscard]] std::size_t connections() const;

    /// Begins no further step. close() fails the turns that still wait.
    void stop() noexcept;
    /// Work left after the thread has ended, for another connection.
    struct leftovers {
        std::vector<std::int64_t> places;  ///< to be cancelled
        std::vector<std::string> names;    ///< to be checked for waiters
        std::vector<std::int64_t> sessions;
    };
    leftovers close() noexcept;

private:
    using guard = std::unique_lock<std::mutex>;

    struct told {
        std::shared_ptr<turn> which;
        std::shared_ptr<grant> granted;  ///< null: it must be verified before it is believed
        std::int64_t token = 0;
        nanoseconds at{0};     ///< when to verify it
        bool durably = false;  ///< its commit may not have reached the disk
    };

    // --- waiting_room.cpp
    [[nodiscard]] nanoseconds look_together() const;
    void serve(const std::shared_ptr<turn>& which, std::int64_t token, nanoseconds sent,
               std::optional<std::int64_t> deadline_us);
    void report_place(const turn& which, std::int64_t position);
    void end(turn& which, turn::state how, const error* why = nullptr) noexcept;
    void poke() const noexcept { alarm_.poke(); }
    [[nodiscard]] nanoseconds now() const noexcept { return clock_.now(); }

    // --- room_rounds.cpp
    void run() noexcept;
    nanoseconds step() noexcept;
    void make_rounds();
    void leave_dead_connection();
    [[nodiscard]] bool is_deaf() const;
    [[nodiscard]] nanoseconds next_moment();
    nanoseconds after_failure(const error& failure) noexcept;
    void connect();
    void disconnect() noexcept;
    void set_up(sql::deadline until);
    void listen(const session& ours);
    void hear_for(std::shared_ptr<session> ours);
    void hear();
    void read_mail();
    void changed();
    bool heard(std::string_view said, bool believed);
    void cancel_places();
    void answer_cancelled(const std::shared_ptr<turn>& which, bool deleted);
    [[nodiscard]] bool has_left(const turn& which) const;
    [[nodiscard]] bool is_over(const turn& which) const;
    bool hand_on_served(const std::string& name, std::int64_t session, std::int64_t grant_id);
    void give_back_unwanted();
    [[nodiscard]] bool is_idle() const;
    void be_more_patient() noexcept;
    void ask_after_sessions();
    [[nodiscard]] std::vector<std::pair<std::string, task>> take_due(task_list& list);
    void look_for_waiters();
    void hand_on_due();
    [[nodiscard]] bool is_busy() const;
    void hand_on(const std::string& name);
    void verify_told();
    void verify(const told& one);
    void poll();
    void poll(const std::shared_ptr<session>& ours,
              const std::vector<std::shared_ptr<turn>>& standing);
    void look_after(const strategy::place& at, session& ours);
    void reset_watermark(const strategy::place& at);
    void see(const std::shared_ptr<turn>& which, const strategy::place& at);
    void ask_after(session& ours, std::vector<std::shared_ptr<turn>> missing);
    void look_for_deadlocks(session& ours, const std::vector<std::shared_ptr<turn>>& standing);
    void give_way(const strategy::deadlock_found& cycle, session& ours);
    void plan_next_poll();
    [[nodiscard]] poll_pacing::wakeup next_wakeup();
    void stop_watching();
    [[nodiscard]] bool watch_closely(bool wanted);
    [[nodiscard]] bool is_asleep() const;
    void let_sleep();
    [[nodiscard]] bool shut_gate_for(std::int64_t session);
    void before_sleep(bool again);
    void woken() noexcept;
    void read_served_if_woken();
    void read_served(sql::connection& db, sql::deadline until);
    [[nodiscard]] sql::deadline soon() const;
    [[nodiscard]] sql::deadline write_deadline() const;

    client_context& context_;
    session_registry& sessions_;
    client_connections& connections_;
    grant_lifecycle& grants_;
    session_keeper& keeper_;
    contended_names& contended_;
    waiters& owner_;
    const client_options& options_;
    const strategy::queue_protocol& queue_;
    const base::clock clock_;
    base::alarm alarm_;
    std::shared_ptr<void> subscription_;  ///< to a test's clock

    mutable std::mutex mutex_;
    std::unordered_map<std::int64_t, std::shared_ptr<turn>> turns_;  ///< by grant id
    std::vector<std::shared_ptr<turn>> cancels_;
    /// There was no memory for that list: all turns that were given up are to be cancelled.
    bool forgotten_ = false;
    task_list hand_on_;         ///< names to run grant_next for
    task_list looks_;           ///< names to check for waiters
    nanoseconds vain_look_{0};  ///< when a check found no waiter
    std::vector<std::int64_t> ended_;
    bool woken_ = false;  ///< by a wake-up that does not say which entry was served
    std::vector<told> told_;
    std::vector<std::shared_ptr<grant>> unwanted_;  ///< served to threads that had left
    std::unique_ptr<mysql_wait_thread>
        mysql_wait_thread_;  ///< where one is needed, made at the first wait
    poll_pacing pacing_;
    bool closing_ = false;

    std::atomic<bool> stopping_{false};
    std::atomic<bool> connected_{false};
    std::atomic<bool> hears_{false};  ///< grants are notified and need no poll
    std::atomic<std::int64_t> listening_for_{0};

    // Used by the room's thread alone.
    std::unique_ptr<sql::connection> db_;
    sql::notifications* notifications_ = nullptr;
    std::shared_ptr<session> mail_for_;  ///< the session whose mailbox is read
    nanoseconds deaf_until_{0};          ///< until then its mailbox is not read, after a flood
    bool is_set_up_ = false;             ///< whether db_ is
    bool in_cluster_;  ///< other nodes may know more than ours, or that is unknown
    bool may_listen_;
    bool may_sleep_;
    bool pooler_known_ = false;
    bool told_by_name_ = false;      ///< our latest grant came by notification, not by a poll
    std::int64_t gate_ = 0;          ///< that this connection holds shut, 0: none …
    std::int64_t gate_session_ = 0;  ///< … for a sleep of this session
    /// The latest poll.
    struct sight {
        nanoseconds began{0};
        bool whole = false;  ///< all entries of the session, also those without a turn
        poll_result found{};
        std::unordered_set<std::int64_t> strays{};  ///< entries of ours without a turn
        std::unordered_set<std::string> rewound{};  ///< names whose watermark was reset
    };
    sight round_;
    std::unordered_set<std::int64_t> strays_;  ///< of the previous whole poll
    nanoseconds whole_poll_at_{0};
    nanoseconds patience_ = strategy::brief;  ///< lock wait of a task that writes, on SQLite
    int failures_ = 0;
    nanoseconds failing_since_{0};
    nanoseconds retry_at_{0};
    bool pauses_idly_ = false;  ///< a pause that ends with the first turn

    std::thread thread_;
};

}  // namespace rowlock::detail
