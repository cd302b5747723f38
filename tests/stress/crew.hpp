#pragma once

#include "stress/history.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace stress {

/// The work of a process of the crew; see queue_worker.cpp.
struct role {
    std::string mode = "handoff";
    int names = 1;
    int threads = 1;
    int count = 0;    ///< calls of each thread; 0: until it is stopped
    int hold_us = 0;  ///< how long a lease is held, besides two readings of a clock
    int ttl_ms = 30'000;
    int poll_ms = 1'000;
    bool polling = false;      ///< without wake-ups
    bool by_database = false;  ///< wakeup_mode::database
    bool barging = false;
    bool fails_when_cut_off = false;  ///< when_cut_off::fail
    unsigned seed = 1;
    std::string program = {};             ///< another program with queue_worker's interface
    std::vector<std::string> words = {};  ///< more of its KEY=VALUE
    std::vector<std::string> environment = {};
};

/// A process with its own client. The destructor kills it if it still runs.
class member {
public:
    member(const support::lock_database& database, const role& part, std::string log);
    member(const member&) = delete;
    member& operator=(const member&) = delete;
    ~member();

    [[nodiscard]] pid_t id() const noexcept { return id_; }
    [[nodiscard]] const std::string& log() const noexcept { return log_; }
    [[nodiscard]] bool killed() const noexcept { return killed_; }

    /// Lets it start, once it is connected.
    void begin();
    /// Waits until it has printed this word.
    [[nodiscard]] bool says(const std::string& word, std::chrono::milliseconds limit);
    /// Waits until its threads have ended by themselves. Its client lives on. False after `limit`.
    [[nodiscard]] bool done(std::chrono::milliseconds limit);
    /// Makes it cancel its waits and end. wait() returns its exit code.
    void stop();
    /// Its exit code; fails the test case if it does not end within `limit`.
    int wait(std::chrono::milliseconds limit = std::chrono::seconds{60});
    void kill();
    /// Returns when all of its threads have stopped.
    void pause() const;
    void resume() const;

private:
    std::string log_;
    pid_t id_ = -1;
    int input_ = -1;
    int output_ = -1;
    std::string said_;
    bool killed_ = false;
};

/// Processes that share the tables of one database, and their history.
class crew {
public:
    explicit crew(const support::lock_database& database);
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;
    ~crew();

    member& add(const role& part);
    [[nodiscard]] const std::vector<std::unique_ptr<member>>& members() const { return members_; }
    void begin();
    /// Stops all live members. A member's failure fails the test case.
    void stop();
    /// The folder for their files.
    [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
    /// The history that all of them have written so far.
    [[nodiscard]] history past() const;

private:
    const support::lock_database& database_;
    std::string folder_;
    std::vector<std::unique_ptr<member>> members_;
};

/// A server for this database alone, whose URL is that of the tests from then on. Null if its
/// programs are missing.
[[nodiscard]] std::unique_ptr<support::own_server> server_of_our_own(support::backend which);

/// The queue entries and leases in the tables, of all sessions.
struct remains {
    std::int64_t tickets = 0;
    std::int64_t holds = 0;
};
[[nodiscard]] remains left_in(support::lock_database& database);

/// Kills, at the server, a connection on which a waiter sleeps. False if none was found.
bool kill_a_listener(support::lock_database& database, unsigned choice);
/// Likewise any connection that has used the tables of this database recently.
bool kill_a_connection(support::lock_database& database, unsigned choice);

/// Kills listeners after random pauses, in its own thread, until destroyed.
class listener_killer {
public:
    listener_killer(support::lock_database& database, unsigned seed,
                    std::chrono::milliseconds shortest, std::chrono::milliseconds longest);

    [[nodiscard]] int killed() const noexcept { return killed_; }
    /// The server did not answer a KILL in time, and the thread has ended: MariaDB may hold one up
    /// for long.
    [[nodiscard]] bool unanswered() const noexcept { return unanswered_; }

private:
    void kill_until(const std::stop_token& over);

    support::lock_database& database_;
    std::mt19937 random_;
    std::uniform_int_distribution<long> pause_;  ///< milliseconds
    std::atomic<int> killed_{0};
    std::atomic<bool> unanswered_{false};
    std::jthread thread_;
};

}  // namespace stress
