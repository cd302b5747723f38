#pragma once

#include "base/clock.hpp"
#include "base/event_queue.hpp"
#include "base/fork_guard.hpp"
#include "base/loss_notifier.hpp"
#include "base/trust_window.hpp"
#include "transaction/advisory/advisory_protocol.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/error.hpp>

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rowlock::detail {

struct advisory_holding;

/// What an advisory_lock points to.
struct advisory_hold {
    enum class state : unsigned char { held, releasing, released, lost };

    advisory_hold(advisory_key of, advisory_mode how, const std::shared_ptr<advisory_holding>& by,
                  std::weak_ptr<advisory_engine> engine);

    advisory_key key;
    advisory_mode mode;
    std::shared_ptr<trust_window> trust;  ///< of the connection
    std::weak_ptr<advisory_engine> owner;
    std::weak_ptr<advisory_holding> tenure;
    base::clock clock{};
    base::fork_guard fork{};
    std::atomic<state> now{state::held};
    std::atomic<loss_reason> reason{loss_reason::none};
    std::atomic<bool> watched{false};  ///< a caller took lost()
    std::stop_source lost_signal{};

    [[nodiscard]] bool held() noexcept;
};

/// One of our connections. The engine's mutex guards everything except `db`, which belongs to the
/// thread that has taken the connection.
///
/// These are not in a sql::connection_pool, which knows only idle connections, all alike, and those
/// that one borrower has: a connection here holds locks while no thread uses it, and the watch must
/// find it, check it and end it then. The engine also decides by the locks on a connection which
/// one a call may take, so a pool would keep only those without locks, and every rule twice.
struct advisory_connection {
    std::unique_ptr<sql::connection> db;
    detail::server_session session;
    std::shared_ptr<trust_window> trust;
    int socket = -1;
    bool taken = true;
    bool wanted_by_watch = false;  ///< the check goes first when it is given back
    bool heard = false;            ///< its socket had data while a thread used it
    bool gone = false;             ///< holds nothing any more; its current user closes it
    std::size_t locks = 0;
    nanoseconds next_check{};
    std::condition_variable_any freed{};  ///< given back, or gone

    /// For the thread that has taken it.
    [[nodiscard]] bool usable() const { return db->alive() && !db->discarded(); }
};

struct advisory_key_state;

/// One lock that the server granted to one of our connections.
struct advisory_holding {
    detail::server_key key;
    advisory_mode mode;
    std::shared_ptr<advisory_connection> on;
    std::shared_ptr<advisory_key_state> at;
    int users = 0;                                        ///< holds, and readers about to join
    std::vector<std::shared_ptr<advisory_hold>> holds{};  ///< those to notify of a loss
    bool leaving = false;  ///< being unlocked: no reader joins, the check skips it
    bool over = false;     ///< unlocked or lost
};

/// One key in this process. The first thread in the queue takes the turn if its mode fits, and asks
/// the database if it must. So threads of this process exclude each other although the database
/// sees one session.
struct advisory_key_state {
    enum class turn : unsigned char {
        free,
        attempting,  ///< a thread has the turn, for a few round trips
        waiting,     ///< a thread has the turn and waits for another process
    };
    struct ticket {
        advisory_mode mode;
        bool patient;
        bool woken = false;
        std::condition_variable_any wake{};

        void call() {
            woken = true;
            wake.notify_all();
        }
    };

    std::string identity;
    turn now = turn::free;
    std::shared_ptr<advisory_holding> lock{};
    std::list<ticket*> queue{};

    [[nodiscard]] bool admits(advisory_mode mode) const noexcept;
};

/// Releases the mutex while a statement runs.
class unlocked {
public:
    explicit unlocked(std::unique_lock<std::mutex>& lock) : lock_{lock} { lock_.unlock(); }
    unlocked(const unlocked&) = delete;
    unlocked& operator=(const unlocked&) = delete;
    ~unlocked() { lock_.lock(); }

private:
    std::unique_lock<std::mutex>& lock_;
};

/// Implements advisory_client. advisory_engine.cpp has the calls, advisory_connections.cpp the
/// connections, advisory_watch.cpp the background thread. One class, with more methods than others
/// here: a call, the connection that holds its lock and the thread that watches that connection
/// change one state together, under one mutex.
class advisory_engine : public std::enable_shared_from_this<advisory_engine> {
public:
    advisory_engine(sql::connection_source source, advisory_options options);
    advisory_engine(const advisory_engine&) = delete;
    advisory_engine& operator=(const advisory_engine&) = delete;

    using steady = std::chrono::steady_clock;

    /// Returns null if the lock was not free by `until` or a stop was requested.
    [[nodiscard]] std::shared_ptr<advisory_hold> acquire(const advisory_key& key,
                                                         advisory_mode mode,
                                                         steady::time_point until,
                                                         const std::stop_token& stop);
    void release(advisory_hold& hold);
    void release_quietly(advisory_hold& hold) noexcept;

    [[nodiscard]] std::size_t connections() const;
    [[nodiscard]] const base::fork_guard& fork() const noexcept { return fork_; }
    void close() noexcept;
    /// Called in a forked child.
    static void abandon(std::shared_ptr<advisory_engine> inherited) noexcept;

private:
    using guard = std::unique_lock<std::mutex>;
    using station = std::shared_ptr<advisory_connection>;
    using place = std::shared_ptr<advisory_key_state>;
    using tenure = std::shared_ptr<advisory_holding>;

    struct request {
        const advisory_key& key;
        detail::server_key server;
        advisory_mode mode = advisory_mode::exclusive;
        steady::time_point until;
        const std::stop_token& stop;
        [[nodiscard]] bool patient() const { return until > steady::now(); }
    };

    class queued;    // a ticket, while it is queued
    class in_turn;   // the turn, while a thread has it
    class retrying;  // what repeat_attempts() asks of a call
    /// A station in use. Made and destroyed with the mutex held.
    class use {
    public:
        use(advisory_engine& engine, station taken) : engine_{engine}, taken_{std::move(taken)} {}
        use(const use&) = delete;
        use& operator=(const use&) = delete;
        ~use() { engine_.give_back(taken_); }

    private:
        advisory_engine& engine_;
        station taken_;
    };

    // Keys and turns
    detail::server_key resolve(const advisory_key& key);
    place place_of(const std::string& identity);
    bool await_turn(guard& lock, advisory_key_state& at, advisory_key_state::ticket& mine,
                    const request& wanted);
    static void wake(const advisory_key_state& at);

    // With the turn
    enum class outcome : unsigned char { ours, not_ours, again };
    struct attempted {
        outcome what;
        std::shared_ptr<advisory_hold> hold{};
    };
    attempted with_retries(guard& lock, const place& at, const request& wanted);
    attempted attempt(guard& lock, const place& at, const request& wanted);
    attempted wait(guard& lock, const place& at, const request& wanted, station on,
                   std::unique_ptr<use> using_it);
    attempted join(guard& lock, const place& at, const request& wanted);
    attempted give_way(guard& lock, const place& at, const request& wanted);
    bool try_on(guard& lock, const place& at, const request& wanted, const station& on);
    bool wait_on(guard& lock, const place& at, const request& wanted, const station& on);
    template <typename Action>
    bool ask(guard& lock, const place& at, const request& wanted, const station& on, Action action);
    bool conclude(guard& lock, const place& at, const request& wanted, const station& on);
    static tenure new_tenure(const place& at, const request& wanted, const station& on);
    std::shared_ptr<advisory_hold> install(const place& at, const request& wanted,
                                           const station& on);
    std::shared_ptr<advisory_hold> new_hold(const tenure& of, const request& wanted);
    static bool is_over(const request& wanted);

    // Giving back
    void leave(guard& lock, const tenure& what);
    void leave_quietly(guard& lock, const tenure& what) noexcept;
    static error gone();
    bool unlock_on(guard& lock, const advisory_holding& what, sql::deadline until);
    void finish(const tenure& what);
    void lose(const tenure& what, loss_reason why) noexcept;
    void lose(advisory_hold& hold, loss_reason why) noexcept;

    // Stations
    [[nodiscard]] sql::deadline soon() const;
    /// How long after a request was sent its answer is trusted.
    [[nodiscard]] nanoseconds belief() const {
        return options_.check_period + options_.statement_timeout;
    }
    station shared_station(guard& lock, sql::deadline until);
    station own_station(guard& lock, sql::deadline until);
    station station_to_wait_on(guard& lock);
    station idle_or_new_station(guard& lock, sql::deadline until);
    station make_station(guard& lock, sql::deadline until, bool shared);
    struct connected {
        std::unique_ptr<sql::connection> db{};
        detail::server_session session{};
    };
    [[nodiscard]] connected connect(bool check_pooler, sql::deadline until) const;
    bool checkout(guard& lock, const station& which, sql::deadline until);
    void give_back(const station& which) noexcept;
    void mark_lost(const station& which, loss_reason why) noexcept;
    void retire(advisory_connection& which) noexcept;
    void extend_trust(advisory_connection& which, nanoseconds sent);
    void require_open() const;

    // The background
    void start_watch();
    void poke_watch() const noexcept;
    void watch() noexcept;
    nanoseconds look_after(guard& lock);
    [[nodiscard]] sql::deadline end_of_belief(const advisory_connection& which) const;
    void check(guard& lock, const station& which);
    void give_back_owed(guard& lock);
    void listen(guard& lock, nanoseconds next);

    void report(event_kind kind, const advisory_key& about, loss_reason why = loss_reason::none,
                std::string_view message = {}) noexcept;

    const sql::connection_source source_;
    const advisory_options options_;
    const std::unique_ptr<const detail::advisory_protocol> protocol_;
    const base::fork_guard fork_;
    const base::clock clock_;
    base::event_queue events_;
    base::loss_notifier signals_;

    mutable std::mutex mutex_;
    std::condition_variable_any changed_;  ///< a station came free, or we are closing
    bool closing_ = false;
    bool pooler_checked_ = false;
    std::string schema_;  ///< MySQL: of every connection, once one was made
    bool schema_known_ = false;
    std::map<std::string, place> places_;
    std::vector<station> stations_;
    station shared_;                                        ///< one of them
    std::vector<tenure> owed_;                              ///< could not be unlocked in time
    std::vector<std::unique_ptr<sql::connection>> closed_;  ///< to be destroyed by the watch, which
                                                            ///< may be polling their sockets
    std::unique_ptr<base::alarm> alarm_;
    std::thread watch_;
};

}  // namespace rowlock::detail
