#pragma once

#include "random.hpp"
#include "weather.hpp"
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

struct sqlite3;

namespace rowlock::sim {

class database;
struct file;

/// The database's side of a connection.
struct server_session {
    int node = 0;  ///< of the client
    sqlite3* handle = nullptr;
    std::unique_ptr<sqlite::connection_ref> runner{};
    int changes_told = 0;  ///< by the handle's count, up to which others have been told
    bool closed = false;
    int descriptor = -1;  ///< readable when others have changed the file; -1: nobody listens
    bool wants_changes = true;
    bool has_changes = false;
    std::set<std::string> channels{};  ///< to which it listens, where the server notifies
    std::vector<sql::notification> messages{};
};

/// A statement on its way, at work, or answered. It lives on when its caller has given up.
struct request {
    std::shared_ptr<server_session> on{};
    const sql::statement* prepared = nullptr;  ///< null: `text` is run
    std::string text{};
    std::string name{};  ///< for people: of the product's statement, or its first word
    std::vector<std::string> texts{};  ///< what `parameters` point to
    std::vector<sql::value> parameters{};
    int node = 0;    ///< of the caller
    u64 thread = 0;  ///< of the caller
    i64 sent = 0, ran = 0;
    i64 give_up_at = forever;  ///< when it stops waiting for the lock of the file
    i64 reply_delay = 0;
    bool answers = true;
    bool closes_after = false;
    bool has_limit = false;  ///< a timer runs that gives up

    bool done = false;  ///< the answer has arrived
    std::variant<std::monostate, sql::result, error> answer{};
    sql::transaction_state state = sql::transaction_state::none;
};

/// A database in memory that simulated clients reach over simulated connections. Each statement is
/// run by the product's own driver (sqlite::connection_ref) at one moment of true time; one that
/// finds the file locked waits for the end of a transaction. Its clock is the true time. Several
/// databases know nothing of each other.
///
/// memdb has no WAL: readers wait for an open transaction that has written. In WAL they would read
/// the state before it, as they do here if they come earlier.
class database {
public:
    /// With the product's tables, all rows of earlier simulations gone.
    /// @param its_identity of the server that it is to be; empty: it is a file
    explicit database(std::string its_identity = {});
    ~database();
    database(const database&) = delete;
    database& operator=(const database&) = delete;

    /// Connections of the node whose thread connects.
    [[nodiscard]] sql::connection_source source();
    std::string identity;
    weather sky{};
    /// Nodes whose statements are neither lost nor late, and fail at once while nothing arrives.
    /// For those that wait long for an answer: their transaction locks the whole file meanwhile.
    std::set<int> spared{};
    i64 clock_step = 0;  ///< by which the database's clock was set
    /// What that clock shows: microseconds since 1970.
    [[nodiscard]] i64 clock() const;

    /// Reads at this moment, past all connections; for oracles.
    [[nodiscard]] sql::result ask(const std::string& text);
    [[nodiscard]] i64 ask_number(const std::string& text);

    /// Called for each statement that succeeded, by its caller, when the answer has arrived.
    std::function<void(const request&, const sql::result&)> on_answer{};

    /// Of each statement before it is sent: true, and it fails with errc::timed_out. For directed
    /// cases.
    std::function<bool(const request&)> refuses{};

    /// Keeps what it knows now for set_back(). False while a transaction has locked it.
    bool save();
    /// Another server takes its place, which knows what was saved: connections end, and no session
    /// of the former server lives.
    void set_back(std::string its_identity);
    /// Ends all connections: what was not committed is gone.
    void crash();

    /// The connections of a killed node, a moment later.
    void close_connections_of(int node_id);
    [[nodiscard]] u64 statements() const noexcept { return statements_; }

    /// @name For connections
    /// @{
    [[nodiscard]] std::shared_ptr<server_session> open_session(int node_id);
    /// Calls this at a true time, unless the database is gone by then.
    void at(i64 true_time, std::function<void()> call) const;
    void after(i64 delay, std::function<void()> call) const;
    void close(const std::shared_ptr<server_session>& which);
    /// At the moment of its arrival.
    void run(const std::shared_ptr<request>& what);
    /// A lease was granted by the statement that runs: its session is notified with the commit.
    struct grant {
        i64 session = 0, grant_id = 0, token = 0;
    };
    void granted(const grant& what) const;
    /// @}

private:
    void end(server_session& session);
    void answer(const std::shared_ptr<request>& what);
    void wait_for_lock(const std::shared_ptr<request>& what);
    void lock_freed();
    void tell_of_change(const server_session& by);
    void notify_of_grants();

    const std::shared_ptr<char> alive_ = std::make_shared<char>();
    file& file_;
    bool saved_ = false;
    std::vector<std::shared_ptr<server_session>> sessions_;
    std::vector<std::shared_ptr<request>> locked_out_;
    mutable std::vector<grant> granted_{};
    u64 statements_ = 0;
};

/// The statement with this text: one object for all clients, so that a handle prepares it once.
[[nodiscard]] const sql::statement& shared_statement(const sql::statement& of_client);

/// The name in the tag that the product puts before each statement, or the first word.
[[nodiscard]] std::string name_of(std::string_view text);

/// A seeded bug: from now on this part of the statement with that name reads differently.
void edit_statement(const std::string& name, const std::string& part, const std::string& instead);
/// Whether a statement was edited since.
[[nodiscard]] bool statement_was_edited();

/// How often each statement ran and how often it changed something, in this process.
struct statement_count {
    u64 runs = 0;
    u64 changes = 0;
};
[[nodiscard]] const std::map<std::string, statement_count>& statement_counts();

/// Once in a process, before the first simulation: makes the tables.
void prepare_databases();

}  // namespace rowlock::sim
