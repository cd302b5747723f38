#pragma once

#include "cli/database.hpp"
#include "cli/exit_code.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/reaper.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The commands. Each returns an exit code, or throws failure or error.
namespace rowlock::cli {

/// How the lock is held. None of them, or `exclusive`: all of it, as a lease.
struct lock_kind_options {
    bool shared = false, exclusive = false;
    std::optional<std::int64_t> limit;   ///< it is a semaphore of this capacity
    std::optional<std::int64_t> weight;  ///< how many of its permits [1]

    [[nodiscard]] bool is_lease() const noexcept { return !shared && !limit; }
};
/// @throws failure if they exclude each other, or a number is out of range
void validate(const lock_kind_options& kind);
/// For a lock of a name that a semaphore has.
[[nodiscard]] failure of_another_kind(const std::string& name);
/// A semaphore has one capacity: commands that name different ones do not agree on what may run.
/// @throws failure unless the semaphore has the one that this command names
void require_capacity(const std::string& name, std::int64_t stored, std::int64_t named);

/// How long to wait for a lock: nullopt is forever, 0 not at all.
using patience = std::optional<std::chrono::milliseconds>;

struct run_options {
    database_options database;
    std::string name;                ///< of all of them, for people; run() fills it in
    std::vector<std::string> locks;  ///< as given: one, or several at once
    std::vector<std::string> command;
    patience wait;
    std::chrono::milliseconds ttl{std::chrono::seconds{30}};
    std::optional<std::chrono::milliseconds> grace;
    std::string owner;
    bool reclaim = false;
    std::string note;
    lock_kind_options kind;
    std::string once;  ///< a period; empty: none
    std::chrono::milliseconds at_least{0};
    std::optional<std::chrono::milliseconds> at_most, skip_if_within;
    bool pass_url = false;
    int busy_exit_code = busy;
    std::optional<int> priority;  ///< of a candidate: the lock is an office (`elect`)
    int ask_signal = 0;           ///< sent to the command if its lock is asked for; 0: none
    bool verbose = false;         ///< says while it waits who has the lock, also if no terminal
    bool quiet = false;           ///< says nothing of that, nor that the command does not run
};
int run(const run_options& options);
/// Runs the command as the leader; campaigns again if leadership is lost.
int elect(const run_options& options);

struct observe_options {
    database_options database;
    std::string name;
    std::chrono::milliseconds poll{250};
    bool once = false;
    bool json = false;
};
/// Prints who leads, whenever that changes.
int observe(const observe_options& options);

struct quorum_options {
    enum class action : unsigned char { init, status, readmit, restart };
    action what = action::status;
    std::string members;
    std::int64_t position = 0;  ///< from 1, of readmit
    std::optional<std::chrono::milliseconds> longest_ttl{};
    bool json = false;
};
/// Founds a quorum, shows its members, or readmits one.
int quorum(const quorum_options& options);

struct acquire_options {
    database_options database;
    std::string name;
    std::chrono::milliseconds duration{0};
    patience wait;
    std::string note;
    lock_kind_options kind;
    int busy_exit_code = busy;
    bool quiet = false;  ///< does not say that the lock is held by another
    bool json = false;
};
int acquire(const acquire_options& options);

struct release_options {
    database_options database;
    std::string name;
    rowlock::grant_id grant_id{};
    bool json = false;
};
/// Whatever kind of lock it is.
int release(const release_options& options);

struct renew_options {
    database_options database;
    std::string name;
    rowlock::grant_id grant_id{};
    std::chrono::milliseconds duration{0};
    bool json = false;
};
/// As release().
int renew(const renew_options& options);

struct list_options {
    database_options database;
    std::string prefix;
    std::string after;
    int limit = 1000;
    bool all = false;
    bool waiting = false;  ///< only names with waiters
    bool json = false;
    enum class order : unsigned char { name, wait, held, waiters };
    order by = order::name;                                 ///< else the greatest first
    std::optional<std::chrono::milliseconds> older_than{};  ///< only leases held for so long
    std::string host{};                                     ///< only leases held there
    bool watch = false;
    std::chrono::milliseconds every{2000};  ///< with `watch`
};
int list(const list_options& options);

struct top_options {
    database_options database;
    std::string prefix;
    std::chrono::milliseconds every{2000};
};
/// Needs a terminal.
int top(const top_options& options);

struct waits_options {
    database_options database;
    std::string prefix;
    bool json = false;
};
/// Prints who waits for whom. Exit code 1 if there is a deadlock among them.
int waits(const waits_options& options);

struct name_options {
    database_options database;
    std::string name;
    bool json = false;
};
int show(const name_options& options);
/// Prints nothing: the exit code is the answer.
int held(const name_options& options);

struct policy_options {
    database_options database;
    std::string name;
    std::optional<std::chrono::milliseconds> max_hold;  ///< set it
    bool no_max_hold = false;                           ///< remove it
    bool json = false;
};
/// Sets what a name demands, or shows it if nothing is to be set.
int policy(const policy_options& options);

/// Of a semaphore or a shared_mutex.
struct counter_options {
    enum class what : unsigned char { set, show, list };
    database_options database;
    std::string name;  ///< list: a prefix, or empty
    std::string after;
    std::int64_t capacity = 0;  ///< set
    int limit = 1000;           ///< list, and the holders that show prints
    bool json = false;
};
int semaphore(counter_options::what what, const counter_options& options);
int shared_locks(counter_options::what what, const counter_options& options);

struct break_options {
    enum class kind : unsigned char { lease, semaphore, shared_mutex };
    database_options database;
    std::string name;
    std::optional<fencing_token> token;  ///< of the hold
    std::optional<kind> of;
    patience wait;     ///< for the holder to stop; empty: until its session would have expired
    bool now = false;  ///< take the lock, and do not wait
    std::chrono::milliseconds within{0};  ///< for the holder to finish; 0: it is to stop
    std::string reason;
    bool yes = false;
    bool json = false;
};
int break_lock(const break_options& options);
/// The kind that "lease", "semaphore" or "shared_mutex" names; nullopt for another text.
std::optional<break_options::kind> break_kind(std::string_view text) noexcept;

struct reap_options {
    database_options database;
    reaper_options reaper;
    std::optional<std::chrono::milliseconds> every;
    bool json = false;
};
int reap(const reap_options& options);

struct history_options {
    database_options database;
    std::string name;
    std::optional<std::chrono::milliseconds> since;
    int limit = 100;
    bool records = false;  ///< not the holds that they tell of
    bool json = false;
};
int history(const history_options& options);

struct migrate_options {
    database_options database;
    std::string history;  ///< on, off, drop; empty: not requested
    std::optional<std::string> dialect;
    std::optional<std::string> grants_for;  ///< a role
    bool read_only = false;                 ///< of that role
    std::optional<int> down_to;
    bool print = false;
    bool status = false;
    bool yes = false;
    bool json = false;
};
int migrate(const migrate_options& options);
/// `migrate --print-grants`.
int print_grants(const migrate_options& options);

/// @throws failure for any other name than postgresql, mysql, mariadb and sqlite
sql::dialect dialect_named(const std::string& name);

struct fence_token_options {
    database_options database;
    std::string table;
    std::string column = "fence_token";
    std::optional<std::string> dialect;
    bool trigger = false;
};
int fence_token(const fence_token_options& options);

struct doctor_options {
    database_options database;
    bool json = false;
};
int doctor(const doctor_options& options);

struct metrics_options {
    database_options database;
    std::optional<std::string> output;  ///< a file; none: standard output
};
int metrics(const metrics_options& options);

struct serve_options {
    database_options database;
    std::string listen = "127.0.0.1:9643";
    std::chrono::milliseconds every{2000};  ///< a page is at most so much behind
    std::string token_file;                 ///< empty: none
    bool allow_break = false;
};
/// Until a signal.
int serve(const serve_options& options);

struct version_options {
    bool json = false;
};
int version(const version_options& options);

}  // namespace rowlock::cli
