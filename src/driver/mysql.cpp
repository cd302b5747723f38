#include "base/ascii.hpp"
#include "base/utf8.hpp"
#include "driver/mysql_greeting.hpp"
#include "driver/own_socket.hpp"
#include "driver/placeholders.hpp"
#include "driver/refusal.hpp"
#include "driver/url.hpp"
#include "sql/group_membership.hpp"
#include "sql/transact_terms.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/classify.hpp>

#include <cppconn/connection.h>
#include <cppconn/driver.h>
#include <cppconn/exception.h>
#include <cppconn/prepared_statement.h>
#include <cppconn/resultset.h>
#include <cppconn/resultset_metadata.h>
#include <cppconn/statement.h>
#include <mysql_driver.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

// Inside namespace rowlock `sql` is rowlock::sql; Connector/C++ is ::sql.
namespace rowlock::mysql {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Read and write timeout of the library, whatever the deadline: for that long a connection given up
// in a silent network keeps its thread and its socket.
constexpr int read_timeout_s = 300;
// A program that generates statements endlessly must not use up the server's
// max_prepared_stmt_count.
constexpr std::size_t most_kept_statements = 512;

// executeUpdate() returns this for a statement that returns rows. (Metadata cannot tell beforehand:
// MariaDB sends none for INSERT … RETURNING until it has run.)
constexpr int answers_rows = -1;

// Error numbers that this code distinguishes; classify_mysql() knows all of them.
constexpr int too_many_connections = 1040;
constexpr int not_in_cluster = 1047;
constexpr int no_such_database = 1049;
constexpr int server_shutdown = 1053;
constexpr int aborting_connection = 1152;
constexpr int too_many_rows_to_read = 1104;
constexpr int wrong_value = 1231;
constexpr int unknown_prepared_statement = 1243;
constexpr int needs_repreparing = 1615;
constexpr int connection_killed = 1927;
constexpr int first_client_error = 2000;
constexpr int no_connection = 2002;
constexpr int tls_failed = 2026;
constexpr int plugin_not_allowed = 5010;  // of the client library
constexpr int columns_changed = 2057;
constexpr int last_client_error = 2999;
constexpr int failed_in_group = 3100;
constexpr int rolled_back_by_group = 3101;
constexpr int idle_too_long = 4031;

// --- errors --------------------------------------------------------------------------------------

error::server_report report_of(const ::sql::SQLException& e) {
    // Connector/C++ makes up HY000 for what the server never saw.
    return {.sqlstate = e.getSQLStateCStr(), .native_code = e.getErrorCode(), .message = e.what()};
}

// An error during COMMIT, or about the server's socket to us: the statement under way may have been
// committed.
bool leaves_a_doubt(int number) {
    return number == 1180 || number == failed_in_group || (number >= 1158 && number <= 1161);
}

bool ends_session(int number) {
    const bool client_side = number >= first_client_error && number <= last_client_error;
    return (client_side && number != columns_changed) || number == server_shutdown ||
           number == aborting_connection || number == connection_killed ||
           number == idle_too_long || leaves_a_doubt(number);
}

// --- one connection ------------------------------------------------------------------------------

// A parameter that owns its text: a call that was given up may still read it.
using owned_value = std::optional<std::pair<std::optional<std::int64_t>, std::string>>;

// One statement with its parameters, to be run now or by another thread.
struct order {
    std::uint64_t id = 0;
    std::shared_ptr<const driver::rewritten> shape;
    std::vector<owned_value> parameters;
};

// Makes orders; keeps the shape of every statement seen.
class order_book {
public:
    order make(const sql::statement& what, std::span<const sql::value> parameters) {
        if (shapes_.size() >= most_kept_statements) shapes_.clear();
        auto& shape = shapes_[what.id()];
        if (!shape) {
            shape = std::make_shared<const driver::rewritten>(driver::rewrite_placeholders(
                what.text(), sql::dialect::mysql, driver::spelling::question));
        }
        shape->require_parameters(parameters.size());
        order made{.id = what.id(), .shape = shape, .parameters = {}};
        made.parameters.reserve(parameters.size());
        for (const sql::value& each : parameters) made.parameters.push_back(owned(each));
        return made;
    }

private:
    static owned_value owned(const sql::value& from) {
        switch (from.type()) {
            case sql::value::kind::null:
                return std::nullopt;
            case sql::value::kind::integer:
                return {{from.integer(), {}}};
            case sql::value::kind::text:
                return {{std::nullopt, std::string{from.text()}}};
        }
        return std::nullopt;
    }

    std::unordered_map<std::uint64_t, std::shared_ptr<const driver::rewritten>> shapes_;
};

// Whether it is one of rowlock's own statements.
bool is_ours(const order& what) {
    return what.shape->text.starts_with("/* rowlock ");
}

// The text of a statement with its values in it; nullopt if a ? in it may be no parameter. Text is
// written as hexadecimal literals: they mean the same in every character set and sql_mode.
std::optional<std::string> as_text(const order& what) {
    const std::string& text = what.shape->text;
    constexpr std::string_view digits = "0123456789abcdef";
    const auto marks = static_cast<std::size_t>(std::ranges::count(text, '?'));
    if (marks != what.shape->order.size()) return std::nullopt;
    std::string made;
    auto next = what.shape->order.begin();
    for (const char c : text) {
        if (c != '?') {
            made += c;
            continue;
        }
        const owned_value& value = what.parameters[*next++];
        if (!value) {
            made += "null";
        } else if (value->first) {
            made += std::to_string(*value->first);
        } else {
            const bool is_text = utf8::check(value->second) != utf8::verdict::malformed;
            made += is_text ? "_utf8mb4 x'" : "x'";
            for (const char each : value->second) {
                const auto byte = static_cast<unsigned char>(each);
                made += digits[byte >> 4U];
                made += digits[byte & 0xfU];
            }
            made += '\'';
        }
    }
    return made;
}

// Only a packet may send several statements in one text, on our own connections. A semicolon that
// ends a statement cannot be told here from one in a literal; the server can, as it prepares one
// statement only. The server does not prepare the definition of a routine, whose body has
// semicolons.
bool may_be_several(const std::string& text) {
    const auto end = text.find_last_not_of("; \t\r\n");
    const auto semicolon = text.find(';');
    if (end == std::string::npos || semicolon > end) return false;
    const std::string head = ascii::lower(text.substr(0, semicolon));
    constexpr std::array<std::string_view, 4> routines{" trigger ", " procedure ", " function ",
                                                       " event "};
    const bool defines = std::ranges::any_of(
        routines, [&](auto each) { return head.find(each) != std::string::npos; });
    return !defines || !head.starts_with("create ");
}

// Fails unless the statement before it changed so many rows. The setting keeps its value.
std::string guard(std::string_view changes) {
    return "set session sql_notes = if(row_count() = " + std::string{changes} + ", @@sql_notes, 2)";
}

// A transaction as one text, which the server runs statement by statement until one fails. Nothing
// else commits on a condition without a round trip: MySQL has no compound statements, and MariaDB
// may fail to read the triggers of our tables inside one. A row after the commit proves that all
// was run: Connector/C++ does not tell the end of the results from one without rows.
struct packet {
    std::string text = "start transaction";
    std::size_t last = 0;               ///< position of the last statement
    std::vector<std::size_t> guards{};  ///< positions
    std::size_t rows = 0;               ///< position of the last one that only reads; 0: none
    std::size_t proof = 0;              ///< position of the row after the commit

    void add(std::string_view statement) {
        text += ';';
        text += statement;
        ++last;
    }
};

// Returns nullopt if a statement cannot be sent as text.
std::optional<packet> packed(std::span<const sql::step> steps, order_book& orders,
                             std::string_view afterwards) {
    packet made;
    const auto* const terms = sql::transact_terms::current();
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::string_view changes = terms != nullptr ? terms->changes()[i] : "1";
        const order what = orders.make(steps[i].what, steps[i].parameters);
        const auto text = is_ours(what) ? as_text(what) : std::nullopt;
        if (!text || may_be_several(*text)) return std::nullopt;
        made.add(*text);
        if (changes.empty()) {
            made.rows = made.last;
            continue;
        }
        made.add(guard(changes));
        made.guards.push_back(made.last);
    }
    made.add("commit");
    made.add("select 1");
    made.proof = made.last;
    if (!afterwards.empty()) made.add(afterwards);
    return made;
}

// Explains a row of sql::group_membership.
std::string outside_group(::sql::ResultSet& row) {
    return sql::why_outside_group(row.getString(1).asStdString(), row.getInt64(2), row.getInt64(3));
}

// Talks over a handle that another object owns. Every call blocks as long as the library does.
class conversation {
public:
    // `ours`: rowlock alone set up this session. Then a statement of rowlock's own is sent as text
    // the first time, and prepared when it comes again: many run once on a connection, and
    // preparing takes a round trip. On another session statements are sent as text.
    conversation(::sql::Connection& handle, const options& how, bool ours)
        : handle_{handle}, keeps_statements_{how.prepare_statements}, ours_{ours} {}

    sql::result execute(const order& what) {
        return guarded([&] {
            try {
                return run(what);
            } catch (const ::sql::SQLException& e) {
                const int number = e.getErrorCode();
                if (number == columns_changed) statements_.erase(what.id);
                // The server has forgotten the statement and has done nothing.
                if (number != unknown_prepared_statement && number != needs_repreparing) throw;
                statements_.erase(what.id);
                return run(what);
            }
        });
    }

    sql::result query(const std::string& text) {
        return guarded([&] {
            if (!ours_ || !may_be_several(text)) return send(text);
            ++round_trips_;
            const std::unique_ptr<::sql::PreparedStatement> one{handle_.prepareStatement(text)};
            return answer_of(*one);
        });
    }

    enum class fate : signed char { refused = -1, undone = 0, committed = 1 };

    // Returns the rows that were wanted, and the fate as the number of affected rows.
    sql::result transact(const packet& what) {
        fate end = fate::refused;
        sql::result done;
        if (takes_packets_) end = run(what, done);
        done.set_affected(static_cast<std::int64_t>(end));
        return done;
    }

    [[nodiscard]] bool alive() const noexcept { return alive_; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept { return round_trips_; }

private:
    template <typename Call>
    sql::result guarded(Call call) {
        try {
            return call();
        } catch (const ::sql::SQLException& e) {
            throw failure(e);
        }
    }

    error failure(const ::sql::SQLException& e) {
        error::server_report report = report_of(e);
        if (report.native_code == columns_changed) {
            return {errc::outcome_unknown,
                    "the columns of a table changed under a kept statement: find out whether it "
                    "happened, then go on with this connection",
                    std::move(report)};
        }
        // No number: the library itself gave up, in an unknown state.
        if (report.native_code == 0 || ends_session(report.native_code)) {
            alive_ = false;
            return driver::broken(std::move(report));
        }
        if (report.native_code == rolled_back_by_group && !is_member()) {
            alive_ = false;
            return driver::broken(std::move(report));
        }
        const errc kind = sql::classify_mysql(report.native_code, report.message);
        return driver::refusal(kind, std::move(report));
    }

    // Tells apart two causes: another member was faster, or this one has left its group with the
    // transaction under way to the others, which may commit it.
    bool is_member() noexcept {
        try {
            const std::unique_ptr<::sql::Statement> statement{handle_.createStatement()};
            ++round_trips_;
            const std::unique_ptr<::sql::ResultSet> row{
                statement->executeQuery(std::string{sql::group_membership})};
            return row->next() && outside_group(*row).empty();
        } catch (const std::exception&) {
            return false;
        }
    }

    sql::result send(const std::string& text) {
        const std::unique_ptr<::sql::Statement> statement{handle_.createStatement()};
        ++round_trips_;
        const bool rows = statement->execute(text);
        sql::result table = rows ? table_of(*statement) : sql::result{};
        if (!rows) table.set_affected(static_cast<std::int64_t>(statement->getUpdateCount()));
        drain(*statement);
        return table;
    }

    sql::result run(const order& what) {
        if (!keeps_statements_) statements_.clear();
        if (goes_as_text(what)) {
            if (const auto text = as_text(what); text && !may_be_several(*text)) return send(*text);
        }
        require_unchanged(what);
        ::sql::PreparedStatement& statement = prepared(what);
        bind(statement, what);
        return answer_of(statement);
    }

    // On a handle of the caller's always: its collation_connection may be of any character set, and
    // the server converts what is bound to that, with a ? for each letter outside of it.
    bool goes_as_text(const order& what) {
        if (!ours_) return true;
        if (!keeps_statements_ || met_.contains(what.id)) return false;
        if (met_.size() >= most_kept_statements) met_.clear();
        met_.insert(what.id);
        return is_ours(what);
    }

    // What is bound must keep every letter. Only the caller changes the settings of its handle.
    void require_unchanged(const order& what) {
        if (ours_ && keeps_letters_) return;
        const auto plain = [](const owned_value& each) {
            return !each || std::ranges::all_of(each->second, [](char c) {
                return static_cast<unsigned char>(c) < 0x80;
            });
        };
        if (std::ranges::all_of(what.parameters, plain)) return;
        const sql::result both = send("select @@character_set_client, @@character_set_connection");
        keeps_letters_ = both.text(0, 0) == "utf8mb4" && both.text(0, 1) == "utf8mb4";
        if (keeps_letters_) return;
        throw error{errc::invalid_options,
                    "the connection's character_set_client and collation_connection must be of "
                    "utf8mb4, or letters would be replaced; nothing was done: SET NAMES utf8mb4"};
    }

    sql::result answer_of(::sql::PreparedStatement& statement) {
        ++round_trips_;
        const int affected = statement.executeUpdate();
        if (affected == answers_rows) {
            sql::result table = table_of(statement);
            drain(statement);
            return table;
        }
        sql::result none;
        none.set_affected(affected);
        return none;
    }

    fate run(const packet& what, sql::result& wanted) {
        std::size_t at = 0;
        try {
            const std::unique_ptr<::sql::Statement> statement{handle_.createStatement()};
            ++round_trips_;
            statement->execute(what.text);
            while (at < what.last) {
                ++at;
                const bool rows = statement->getMoreResults();
                if (rows && at == what.rows) {
                    wanted = table_of(*statement);
                } else if (rows) {
                    const std::unique_ptr<::sql::ResultSet> row{statement->getResultSet()};
                }
                if (at == what.proof && !rows) throw unproven();
            }
            return fate::committed;
        } catch (const ::sql::SQLException& e) {
            const int number = e.getErrorCode();
            const bool broken = number == 0 || ends_session(number);
            if (broken) alive_ = false;
            if (at > what.proof) return fate::committed;
            if (!broken) undo();  // before anything that may run out of memory
            return undone(e, at, what);
        } catch (...) {
            alive_ = false;  // amid the results
            throw;
        }
    }

    // Translates the failure of the statement at position `at`, once all before it is rolled back.
    fate undone(const ::sql::SQLException& e, std::size_t at, const packet& what) {
        const int number = e.getErrorCode();
        const bool guard = std::ranges::find(what.guards, at) != what.guards.end();
        if (guard && number == wrong_value) return fate::undone;
        if (at == 0 && alive_) {  // START TRANSACTION, or a proxy that takes one statement only
            takes_packets_ = false;
            return fate::refused;
        }
        error why = failure(e);
        const bool before_commit = at + 1 < what.proof;
        const bool certain = why.kind() == errc::deadlock || why.kind() == errc::read_only ||
                             why.kind() == errc::conflict;
        if (before_commit || certain || !alive_) throw error{std::move(why)};
        throw error{errc::outcome_unknown, std::string{"the commit failed: "} + why.what(),
                    report_of(e)};
    }

    error unproven() {
        alive_ = false;
        return {
            errc::outcome_unknown,
            "the server or a proxy ran some statements of a transaction and said nothing of the "
            "rest"};
    }

    // A connection whose transaction could not be ended is not used again.
    void undo() noexcept {
        try {
            (void)send("rollback");
        } catch (const std::exception&) {
            alive_ = false;
        }
    }

    ::sql::PreparedStatement& prepared(const order& what) {
        if (const auto found = statements_.find(what.id); found != statements_.end()) {
            return *found->second;
        }
        if (statements_.size() >= most_kept_statements) statements_.clear();
        ++round_trips_;
        std::unique_ptr<::sql::PreparedStatement> fresh{handle_.prepareStatement(what.shape->text)};
        return *statements_.emplace(what.id, std::move(fresh)).first->second;
    }

    static void bind(::sql::PreparedStatement& statement, const order& what) {
        unsigned position = 0;
        for (const std::size_t parameter : what.shape->order) {
            const owned_value& value = what.parameters[parameter];
            ++position;
            if (!value) {
                statement.setNull(position, 0);
            } else if (value->first) {
                statement.setInt64(position, *value->first);
            } else {
                statement.setString(position, value->second);
            }
        }
    }

    template <typename Statement>
    static sql::result table_of(Statement& statement) {
        const std::unique_ptr<::sql::ResultSet> rows{statement.getResultSet()};
        const unsigned columns = rows->getMetaData()->getColumnCount();
        sql::result table{columns};
        while (rows->next()) {
            for (unsigned column = 1; column <= columns; ++column) {
                const std::string text = rows->getString(column);
                if (rows->wasNull()) {
                    table.append_null();
                } else {
                    table.append_text(text);
                }
            }
        }
        return table;
    }

    // After the rows of a procedure comes its own end, or its error.
    template <typename Statement>
    static void drain(Statement& statement) {
        while (statement.getMoreResults()) {
            const std::unique_ptr<::sql::ResultSet> rest{statement.getResultSet()};
        }
    }

    ::sql::Connection& handle_;
    bool keeps_statements_;
    bool ours_;
    std::unordered_set<std::uint64_t> met_;
    bool alive_ = true;
    bool takes_packets_ = true;
    bool keeps_letters_ = false;
    std::uint64_t round_trips_ = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<::sql::PreparedStatement>> statements_;
};

// --- connecting ----------------------------------------------------------------------------------

// A server may ask for the password itself (PAM), or for a line from the terminal (dialog), and so
// may an attacker in its place. The library complies, with or without TLS, unless it has a list of
// the plugins that it may take. These answer a challenge, and never send the password itself …
constexpr std::string_view challenged =
    "mysql_native_password,client_ed25519,parsec,auth_gssapi_client";
// … these send it encrypted by the server's key if they were not asked for TLS …
constexpr std::string_view hashing =
    "mysql_native_password,client_ed25519,parsec,auth_gssapi_client,caching_sha2_password,"
    "sha256_password";
// … and one of these sends it in clear text, to a server on the same machine.
constexpr std::string_view of_this_machine =
    "mysql_native_password,client_ed25519,parsec,auth_gssapi_client,caching_sha2_password,"
    "sha256_password,mysql_clear_password";

// The host as Connector/C++ wants it, which passes on the text in brackets. The library reads a
// host with a semicolon as a connection string, the only place to name the plugins; a library that
// does not know such strings finds no host of that name. require_plain() has checked the hosts.
std::string host_name(const std::string& host, std::uint16_t port, std::string_view plugins) {
    std::string made = "tcp://[";
    if (plugins.empty()) {
        made += host;
    } else {
        made.append("restricted-auth=").append(plugins).append(";host=").append(host);
    }
    return made + "]:" + std::to_string(port);
}

// Counts the connects of one source that were given up and are still under way: a server may make
// the library wait for minutes, and each has a thread. Those begun before the limit was reached
// come on top.
class given_up_connects {
public:
    given_up_connects() = default;
    given_up_connects(const given_up_connects&) = delete;
    given_up_connects& operator=(const given_up_connects&) = delete;
    ~given_up_connects() {
        if (now_.load()->home == ::getpid()) delete now_.load();
    }

    /// @throws error errc::database_unreachable
    void wait_for_room(sql::deadline until) {
        state& here = of_this_process();
        std::unique_lock lock{here.mutex};
        if (here.fewer.wait_until(lock, until, [&] { return here.count < most; })) return;
        throw error{errc::database_unreachable,
                    "connections that were abandoned are still being opened"};
    }

    void add() {
        state& here = of_this_process();
        const std::lock_guard lock{here.mutex};
        ++here.count;
    }

    void remove() noexcept {
        state& here = of_this_process();
        {
            const std::lock_guard lock{here.mutex};
            --here.count;
        }
        here.fewer.notify_all();
    }

private:
    static constexpr int most = 16;

    struct state {
        pid_t home = ::getpid();
        std::mutex mutex;
        std::condition_variable fewer;
        int count = 0;
    };

    // A forked child has none of these threads, and does not touch its parent's state, whose mutex
    // may be locked forever.
    state& of_this_process() {
        state* found = now_.load();
        if (found->home == ::getpid()) return *found;
        auto fresh = std::make_unique<state>();
        if (now_.compare_exchange_strong(found, fresh.get())) return *fresh.release();
        return *found;
    }

    std::atomic<state*> now_{new state};
};

struct place : driver::url_host {
    /// Until when to remember that the server asked for a plugin that is not safe.
    std::shared_ptr<std::atomic<steady_clock::time_point>> asks_for_others =
        std::make_shared<std::atomic<steady_clock::time_point>>();
};

// Where and how to connect, worked out once by open().
struct target {
    ::sql::ConnectOptionsMap settings;
    std::string socket;        ///< instead of hosts
    std::vector<place> hosts;  ///< if several, the first that accepts writes
    std::string_view plugins;  ///< if not empty, no others are allowed
    /// Tried first, if any: safe before it is known whether the server has TLS.
    std::string_view safe_plugins;
    bool needs_tls = false;
    bool verifies = false;  ///< the server's certificate
    bool refuses_tls = false;
    bool says_mode = false;  ///< the URL has an ssl-mode
    std::shared_ptr<given_up_connects> given_up = std::make_shared<given_up_connects>();
    std::string password;
    std::string description;
    sql::table_names tables;
};

bool boolean(const driver::url_parameter& given) {
    const std::string text = ascii::lower(given.value);
    if (text == "true" || text == "1" || text == "yes") return true;
    if (text == "false" || text == "0" || text == "no") return false;
    driver::refuse_value(given, "true or false");
}

void apply_ssl_mode(const driver::url_parameter& given, target& to) {
    const std::string mode = ascii::lower(given.value);
    const bool verify = mode == "verify_ca" || mode == "verify_identity";
    if (!verify && mode != "required" && mode != "preferred" && mode != "disabled") {
        driver::refuse_value(given, "DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY");
    }
    to.says_mode = true;
    to.refuses_tls = mode == "disabled";
    if (to.refuses_tls || mode == "preferred") return;
    to.needs_tls = true;
    if (verify) to.settings["sslVerify"] = to.verifies = true;
}

void apply(const driver::url_parameter& given, target& to) {
    constexpr std::array files{
        std::pair{"ssl-ca", "sslCA"},          std::pair{"ssl-capath", "sslCAPath"},
        std::pair{"ssl-cert", "sslCert"},      std::pair{"ssl-key", "sslKey"},
        std::pair{"ssl-cipher", "sslCipher"},  std::pair{"ssl-crl", "sslCRL"},
        std::pair{"ssl-crlpath", "sslCRLPath"}};
    for (const auto& [name, option] : files) {
        if (given.name != name) continue;
        to.settings[option] = given.value;
        to.needs_tls = true;
        return;
    }
    if (given.name == "ssl-mode") return apply_ssl_mode(given, to);
    if (given.name == "ssl-verify") {
        const bool verify = boolean(given);
        if (!verify && to.verifies) {
            throw error{errc::invalid_url, "the MySQL URL says both to verify and not to"};
        }
        to.settings["sslVerify"] = to.verifies = verify;
        to.needs_tls = to.needs_tls || verify;
    } else if (given.name == "read-default-file") {
        to.settings["readDefaultFile"] = given.value;
    } else if (given.name != "socket") {
        driver::refuse_parameter("mysql", given);
    }
}

// With any other character the library reads a host as a connection string, or as several hosts.
void require_plain(const driver::url_host& given) {
    constexpr std::string_view plain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
        "0123456789.-_:%";
    if (given.host.find_first_not_of(plain) == std::string::npos) return;
    throw error{errc::invalid_url, "a host in a MySQL URL has letters, digits and . - _ : % only"};
}

void require_parts(const driver::url& from, const std::string& socket) {
    if (from.scheme != "mysql" && from.scheme != "mariadb") {
        throw error{errc::invalid_url, "a MySQL URL starts with mysql:// or mariadb://"};
    }
    const bool nameless =
        std::ranges::any_of(from.more_hosts, &std::string::empty, &driver::url_host::host);
    if ((from.host.empty() && socket.empty()) || nameless) {
        throw error{errc::invalid_url,
                    "a MySQL URL names a host or ?socket=/path: mysql://user@host/database"};
    }
    if (!socket.empty() && !from.more_hosts.empty()) {
        throw error{errc::invalid_url, "a MySQL URL names a socket or several hosts, not both"};
    }
    // Catches a password with a raw / in it, whose first part looks like hosts.
    if (!from.more_hosts.empty() && from.database.find('@') != std::string::npos) {
        throw error{errc::invalid_url,
                    "a MySQL URL of several hosts has no @ behind them; in a password / is written "
                    "%2F, and in a user's name as well"};
    }
    if (from.database.empty() || from.database.find('/') != std::string::npos) {
        throw error{errc::invalid_url, "a MySQL URL names a database: mysql://user@host/database"};
    }
}

constexpr std::uint16_t default_port = 3306;

// Whether the host is this machine, so that nothing is sent over a network. With TLS the library
// would read all certificate authorities of the machine for each connection.
bool is_local(std::string_view host) {
    return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

target understand(const std::string& text) {
    driver::url from = driver::parse_url(text);
    target made;
    made.tables = driver::take_table_names(from.parameters, sql::dialect::mysql);
    for (const driver::url_parameter& each : from.parameters) {
        if (each.name == "socket") made.socket = each.value;
        apply(each, made);
    }
    const std::string& socket = made.socket;
    require_parts(from, socket);
    if (made.needs_tls && made.refuses_tls) {
        throw error{errc::invalid_url,
                    "the MySQL URL says ssl-mode=DISABLED and has parameters for TLS"};
    }
    std::string addresses;
    bool local = true;
    std::vector<driver::url_host> hosts{static_cast<const driver::url_host&>(from)};
    hosts.insert(hosts.end(), from.more_hosts.begin(), from.more_hosts.end());
    for (const auto& each : hosts) {
        require_plain(each);
        const std::string host =
            each.host.find(':') == std::string::npos ? each.host : "[" + each.host + "]";
        local = local && (!socket.empty() || is_local(each.host));
        made.hosts.push_back({{each.host, each.port == 0 ? default_port : each.port}});
        if (!addresses.empty()) addresses += ",";
        addresses += host + (each.port == 0 ? "" : ":" + std::to_string(each.port));
    }
    if (local && !made.says_mode && !made.needs_tls) made.refuses_tls = true;
    auto& settings = made.settings;
    settings["userName"] = from.user;
    settings["schema"] = from.database;
    settings["OPT_CHARSET_NAME"] = std::string{"utf8mb4"};
    settings["OPT_RECONNECT"] = false;  // a new session would silently have lost every setting
    settings["CLIENT_MULTI_STATEMENTS"] = true;  // packet
    settings["OPT_READ_TIMEOUT"] = read_timeout_s;
    settings["OPT_WRITE_TIMEOUT"] = read_timeout_s;
    made.password = from.password;
    const bool names_file = settings.contains("readDefaultFile");
    const char* const known = std::getenv("MYSQL_PWD");
    if (made.password.empty() && !names_file && known != nullptr) made.password = known;
    settings["password"] = made.password;
    // Given a group, the library reads the option files. Their host would override that of a
    // connection string, so the files themselves have to say what they allow.
    if (made.password.empty()) settings["readDefaultGroup"] = std::string{"client"};
    if (!made.verifies && !made.password.empty() && !names_file && socket.empty()) {
        made.plugins = local ? of_this_machine : hashing;
        if (!made.needs_tls) made.safe_plugins = challenged;
    }
    made.description = from.scheme + "://" + (from.user.empty() ? "" : from.user + "@") +
                       addresses + "/" + from.database +
                       (socket.empty() ? "" : "?socket=" + socket);
    return made;
}

// `advice` and the library's message.
error refused(errc kind, std::string advice, error::server_report report) {
    advice += ": ";
    advice += report.message;
    return {kind, advice, std::move(report)};
}

// When the library wants TLS, it does not believe a server that refuses it before TLS is set up,
// and reports that it could not connect. This takes the refusal as the server's answer: a forged
// one gains an attacker no more than a broken connection does.
error::server_report believed(error::server_report report) {
    constexpr std::string_view doubt = "error cannot be verified: ";
    constexpr std::string_view separator = " - ";
    const auto found = report.message.find(doubt);
    if (report.native_code != no_connection || found == std::string::npos) return report;
    const std::string_view cause = std::string_view{report.message}.substr(found + doubt.size());
    const auto [end, failed] =
        std::from_chars(cause.data(), cause.data() + cause.size(), report.native_code);
    const std::string_view rest = cause.substr(static_cast<std::size_t>(end - cause.data()));
    if (failed == std::errc{} && rest.starts_with(separator)) {
        report.message = std::string{rest.substr(separator.size())};
    }
    return report;
}

error cannot_connect(const ::sql::SQLException& e, const target& to) {
    error::server_report report = believed(report_of(e));
    if (!to.password.empty() && report.message.find(to.password) != std::string::npos) {
        report.message.clear();
    }
    if (report.native_code == no_such_database) {
        return refused(errc::database_unreachable,
                       "there is no such database, or no right to it: create it or correct the URL",
                       std::move(report));
    }
    if (report.native_code == tls_failed) {
        return refused(errc::database_unreachable,
                       "TLS could not be set up: check the URL's ssl parameters and the server's "
                       "certificate",
                       std::move(report));
    }
    if (report.native_code == plugin_not_allowed) {
        report.message.clear();  // the library has formatted it from freed memory
        return {errc::unsupported,
                "the server asks for a way to authenticate that may send the password in clear "
                "text, or that asks at the terminal: only a server whose certificate is verified "
                "may, so set ssl-mode=VERIFY_IDENTITY",
                std::move(report)};
    }
    const errc kind = report.native_code == 0 ? errc::database_unreachable
                                              : sql::classify_mysql(report.native_code);
    return driver::refusal(kind, std::move(report));
}

// Our own instance, since get_mysql_driver_instance() is not thread-safe. Never destroyed, since a
// thread that was left behind may use it while the program ends.
::sql::mysql::MySQL_Driver& library() {
    static auto& instance = *new ::sql::mysql::MySQL_Driver;
    return instance;
}

error no_tls() {
    return {errc::unsupported, "TLS is required and the server does not offer it"};
}

// Too late to protect a password, which the library may have sent; in time for all else.
void require_tls(::sql::Connection& made) {
    const std::unique_ptr<::sql::Statement> statement{made.createStatement()};
    const std::unique_ptr<::sql::ResultSet> rows{
        statement->executeQuery("show session status like 'Ssl_cipher'")};
    if (rows->next() && rows->getString(2).length() > 0) return;
    throw no_tls();
}

// With several hosts, requires one that accepts writes: no replica, and no member of a cluster that
// is not in it. Any server answers SHOW.
void require_writer(::sql::Connection& made) {
    const std::unique_ptr<::sql::Statement> statement{made.createStatement()};
    const auto show = [&](const char* what, const auto& look_at) {
        const std::unique_ptr<::sql::ResultSet> rows{statement->executeQuery(what)};
        while (rows->next()) look_at(rows->getString(1), rows->getString(2));
    };
    bool read_only = false;
    bool in_cluster = false;
    bool ready = true;
    bool in_group = false;
    show(
        "show global variables where variable_name in ('read_only', 'innodb_read_only', "
        "'wsrep_on', 'group_replication_group_name')",
        [&](const std::string& name, const std::string& value) {
            if (name == "group_replication_group_name") {
                in_group = !value.empty();
                return;
            }
            const bool on = value != "OFF" && value != "0";
            (name == "wsrep_on" ? in_cluster : read_only) |= on;
        });
    if (in_cluster) {
        show("show global status where variable_name = 'wsrep_ready'",
             [&](const std::string&, const std::string& value) { ready = value == "ON"; });
    }
    if (read_only) throw error{errc::database_unreachable, "one of the hosts is read-only"};
    if (!ready) throw error{errc::database_unreachable, "one of the hosts is not in its cluster"};
    if (!in_group) return;
    try {
        const std::unique_ptr<::sql::ResultSet> row{
            statement->executeQuery(std::string{sql::group_membership})};
        row->next();
        const std::string why = outside_group(*row);
        if (!why.empty()) throw error{errc::database_unreachable, why};
    } catch (const ::sql::SQLException& e) {
        if (sql::classify_mysql(e.getErrorCode()) != errc::access_denied) throw;
        throw error{errc::access_denied, std::string{sql::no_right_to_membership}, report_of(e)};
    }
}

// One login attempt.
struct login {
    std::string host_name;
    bool tls = false;  ///< where the server offers it
    bool requires_tls = false;
};

// The library sends it first, for a round trip more.
constexpr std::string_view reads_all =
    "set session sql_big_selects = 1, sql_select_limit = 18446744073709551615";

// The library asks for a variable as it connects, which a small max_join_size of the server's
// forbids.
std::unique_ptr<::sql::Connection> log_in(::sql::ConnectOptionsMap& settings) {
    try {
        return std::unique_ptr<::sql::Connection>{library().connect(settings)};
    } catch (const ::sql::SQLException& e) {
        if (e.getErrorCode() != too_many_rows_to_read) throw;
    }
    settings["preInit"] = std::string{reads_all};
    return std::unique_ptr<::sql::Connection>{library().connect(settings)};
}

std::unique_ptr<::sql::Connection> log_in(const login& how, const target& to, sql::deadline until) {
    ::sql::ConnectOptionsMap settings = to.settings;
    settings["hostName"] = how.host_name;
    const auto left = std::chrono::ceil<std::chrono::seconds>(until - steady_clock::now()).count();
    settings["OPT_CONNECT_TIMEOUT"] = static_cast<int>(std::clamp<long>(left, 1, read_timeout_s));
    if (how.tls) settings["sslEnforce"] = true;
    // Or require_writer() would read the first variables alone.
    if (to.hosts.size() > 1) settings["preInit"] = std::string{reads_all};
    try {
        auto made = log_in(settings);
        if (how.requires_tls) require_tls(*made);
        if (to.hosts.size() > 1) require_writer(*made);
        return made;
    } catch (const ::sql::SQLException& e) {
        throw cannot_connect(e, to);
    }
}

// Logs in without reading the greeting first, where that is not needed or not possible.
std::unique_ptr<::sql::Connection> log_in_at_once(const driver::url_host& where, const target& to,
                                                  sql::deadline until) {
    const std::string place =
        to.socket.empty() ? host_name(where.host, where.port, to.plugins) : "unix://" + to.socket;
    return log_in({.host_name = place, .tls = to.needs_tls, .requires_tls = to.needs_tls}, to,
                  until);
}

// Logs in with TLS if the server has it. Returns null if the server asks for another plugin: none
// of the others is safe until it is known whether there is TLS.
std::unique_ptr<::sql::Connection> log_in_safely(const place& where, const target& to,
                                                 sql::deadline until) {
    try {
        return log_in({.host_name = host_name(where.host, where.port, to.safe_plugins),
                       .tls = true,
                       .requires_tls = false},
                      to, until);
    } catch (const error& failure) {
        if (failure.native_code() != plugin_not_allowed) throw;
        where.asks_for_others->store(steady_clock::now() + 1min);
        return nullptr;
    }
}

// If the server has no TLS, the library continues in clear text, and its caching_sha2_password
// takes the option for TLS itself and sends the password as it is. So the option is set only for a
// server whose greeting offers TLS, at the address that sent the greeting.
std::unique_ptr<::sql::Connection> look_and_log_in(const driver::url_host& where, const target& to,
                                                   sql::deadline until) {
    const auto found = driver::look_at_mysql(where.host, where.port, until);
    if (to.needs_tls && !found.offers_tls) throw no_tls();
    return log_in({.host_name = host_name(found.address, where.port, to.plugins),
                   .tls = found.offers_tls,
                   .requires_tls = found.offers_tls},
                  to, until);
}

// MariaDB logs a warning each time its greeting is read, so the plugins that answer a challenge are
// tried first, without that. A server hangs up before it stops counting the connection that read
// the greeting, which may briefly be the one that is missing.
std::unique_ptr<::sql::Connection> connect_to(const place& where, const target& to,
                                              sql::deadline until) {
    if (!to.socket.empty() || to.refuses_tls || to.verifies) {
        return log_in_at_once(where, to, until);
    }
    if (!to.safe_plugins.empty() && where.asks_for_others->load() <= steady_clock::now()) {
        if (auto made = log_in_safely(where, to, until)) return made;
    }
    for (const auto pause : {5ms, 50ms}) {
        try {
            return look_and_log_in(where, to, until);
        } catch (const error& failure) {
            const bool in_time = steady_clock::now() + pause < until;
            if (failure.native_code() != too_many_connections || !in_time) throw;
        }
        std::this_thread::sleep_for(pause);
    }
    return look_and_log_in(where, to, until);
}

// Tries the hosts in the order of the URL, each with its share of the time.
std::unique_ptr<::sql::Connection> connect(const target& to, sql::deadline until) {
    if (to.hosts.size() == 1) return connect_to(to.hosts.front(), to, until);
    std::string failures;
    for (std::size_t i = 0; i < to.hosts.size(); ++i) {
        const auto now = steady_clock::now();
        const auto share = (until - now) / static_cast<long>(to.hosts.size() - i);
        try {
            return connect_to(to.hosts[i], to, now + share);
        } catch (const error& e) {
            if (e.kind() != errc::database_unreachable) throw;
            if (!failures.empty()) failures += "; ";
            failures += e.server_message().empty() ? std::string{e.what()} : e.server_message();
        }
    }
    throw error{errc::database_unreachable, "none of the database's hosts will do: " + failures};
}

// --- deadlines -----------------------------------------------------------------------------------

// Connector/C++ blocks, has no deadline per call and does not expose its socket. It connects on a
// thread of its own, which is left behind if that takes too long. If the socket was found then, the
// caller's thread makes the calls, and shutting the socket down ends them at their deadline: waking
// another thread to make them took longer than many a statement.
class guarded_connection {
public:
    guarded_connection(std::unique_ptr<::sql::Connection> handle, driver::descriptor socket,
                       std::shared_ptr<driver::deadlines> watch, const options& how)
        : socket_{std::move(socket)},
          watch_{std::move(watch)},
          handle_{std::move(handle)},
          talk_{std::in_place, *handle_, how, true} {}
    guarded_connection(const guarded_connection&) = delete;
    guarded_connection& operator=(const guarded_connection&) = delete;

    // An idle connection closes without waiting for the server, and so does one that was shut down.
    ~guarded_connection() {
        const driver::no_pipe_signal quiet;
        if (!alive()) ::shutdown(socket_.number(), SHUT_RDWR);
        const driver::deadlines::call closing{*watch_, socket_, steady_clock::now() + 1s};
        talk_.reset();
        handle_.reset();
    }

    template <typename Job>
    sql::result call(Job what, sql::deadline until) {
        const driver::no_pipe_signal quiet;
        driver::deadlines::call running{*watch_, socket_, until};
        try {
            sql::result answer = what(*talk_);
            late_ = running.end();  // the answer arrived all the same
            return answer;
        } catch (...) {
            late_ = running.end();
            if (late_) throw driver::unanswered();
            throw;
        }
    }

    [[nodiscard]] bool alive() const noexcept { return !late_ && talk_->alive(); }
    [[nodiscard]] std::uint64_t round_trips() const noexcept { return talk_->round_trips(); }

private:
    driver::descriptor socket_;
    std::shared_ptr<driver::deadlines> watch_;
    std::unique_ptr<::sql::Connection> handle_;
    std::optional<conversation> talk_;
    bool late_ = false;
};

// If the socket is not known, the connection stays with its thread, and a call waits for that
// thread until its deadline. Then the thread is left behind: it closes the connection as soon as
// the library returns.
class worker {
public:
    using job = std::function<sql::result(conversation&)>;

    worker(const std::shared_ptr<const target>& to, const options& how, sql::deadline until)
        : desk_{std::make_shared<desk>()} {
        if (until <= steady_clock::now()) throw driver::not_connected();
        to->given_up->wait_for_room(until);
        start(to, how, until);
        std::unique_lock lock{desk_->mutex};
        if (!desk_->answered.wait_until(lock, until, [&] { return desk_->done; })) {
            to->given_up->add();
            desk_->counted = true;
            give_up();
            throw driver::not_connected();
        }
        if (!desk_->failure) return;
        lock.unlock();
        thread_.join();
        std::rethrow_exception(desk_->failure);
    }
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    // An idle connection closes without waiting for the server.
    ~worker() {
        if (!thread_.joinable()) return;
        {
            const std::lock_guard lock{desk_->mutex};
            desk_->closing = true;
        }
        desk_->wanted.notify_one();
        thread_.join();
    }

    sql::result call(job what, sql::deadline until) {
        {
            const std::lock_guard lock{desk_->mutex};
            desk_->waiting = std::move(what);
            desk_->done = false;
        }
        desk_->wanted.notify_one();
        std::unique_lock lock{desk_->mutex};
        if (!desk_->answered.wait_until(lock, until, [&] { return desk_->done; })) {
            give_up();
            throw driver::unanswered();
        }
        alive_ = desk_->alive;
        round_trips_ = desk_->round_trips;
        if (desk_->failure) std::rethrow_exception(std::exchange(desk_->failure, nullptr));
        return std::move(desk_->answer);
    }

    // Returns the connection, if its socket was found; this object and its thread are then done.
    std::unique_ptr<guarded_connection> take() noexcept { return std::move(desk_->found); }

    [[nodiscard]] bool alive() const noexcept { return alive_; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept { return round_trips_; }

private:
    // What both threads share, under its mutex.
    struct desk {
        std::mutex mutex;
        std::condition_variable wanted;
        std::condition_variable answered;
        job waiting;
        bool closing = false;
        bool counted = false;  ///< among target::given_up
        bool done = false;
        bool alive = true;
        std::uint64_t round_trips = 0;
        sql::result answer;
        std::exception_ptr failure;
        std::unique_ptr<guarded_connection> found;
    };

    void start(std::shared_ptr<const target> to, const options& how, sql::deadline until) {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all,
                        &before);  // the program's signals are not for this thread
        try {
            thread_ = std::thread{serve, desk_, std::move(to), how, until};
        } catch (const std::system_error&) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw error{errc::out_of_resources, "no thread for a connection could be started"};
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void give_up() {
        alive_ = false;
        desk_->closing = true;
        thread_.detach();
    }

    static void serve(const std::shared_ptr<desk>& shared, const std::shared_ptr<const target>& to,
                      const options& how, sql::deadline until) noexcept {
        library().threadInit();
        converse(*shared, *to, how, until);
        library().threadEnd();
        const std::lock_guard lock{shared->mutex};
        if (shared->counted) to->given_up->remove();
    }

    static void converse(desk& shared, const target& to, const options& how, sql::deadline until) {
        std::unique_ptr<::sql::Connection> handle;
        std::optional<conversation> talk;
        std::unique_lock lock{shared.mutex};
        shared.waiting = [&](conversation&) { return sql::result{}; };
        for (;;) {
            shared.wanted.wait(lock, [&] { return shared.closing || shared.waiting; });
            if (shared.closing) return lock.unlock();
            const job next = std::exchange(shared.waiting, nullptr);
            lock.unlock();
            sql::result answer;
            std::exception_ptr failure;
            std::unique_ptr<guarded_connection> found;
            try {
                if (!handle) {
                    const driver::open_sockets before;
                    handle = connect(to, until);
                    before.close_on_exec();
                    if (auto socket = before.only_new_one()) {
                        found = std::make_unique<guarded_connection>(
                            std::move(handle), *std::move(socket),
                            driver::deadlines::of_this_process(), how);
                    } else {
                        talk.emplace(*handle, how, true);
                    }
                }
                if (!found) answer = next(*talk);
            } catch (...) {
                failure = std::current_exception();
                if (!talk) handle.reset();  // or nothing would ever end this thread
            }
            lock.lock();
            shared.answer = std::move(answer);
            shared.failure = std::move(failure);  // its last owner is the caller
            shared.alive = talk && talk->alive();
            shared.round_trips = talk ? talk->round_trips() : 0;
            if (!shared.closing) shared.found = std::move(found);
            shared.done = true;
            lock.unlock();
            shared.answered.notify_one();
            if (!handle) return;
            lock.lock();
        }
    }

    std::shared_ptr<desk> desk_;
    std::thread thread_;
    bool alive_ = true;
    std::uint64_t round_trips_ = 0;
};

class own_connection final : public sql::connection {
public:
    own_connection(const std::shared_ptr<const target>& to, const options& how, sql::deadline until)
        : worker_{std::make_unique<worker>(to, how, until)}, guarded_{worker_->take()} {
        if (guarded_) worker_.reset();
    }
    own_connection(const own_connection&) = delete;
    own_connection& operator=(const own_connection&) = delete;

    // A forked child has neither the threads nor a socket of its own.
    ~own_connection() override {
        if (home_ == ::getpid()) return;
        (void)worker_.release();
        (void)guarded_.release();
    }

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::mysql; }

    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        check_usable(until);
        return call([wanted = orders_.make(what, parameters)](
                        conversation& talk) { return talk.execute(wanted); },
                    until);
    }

    sql::result query(std::string_view text, sql::deadline until) override {
        check_usable(until);
        return call([wanted = std::string{text}](conversation& talk) { return talk.query(wanted); },
                    until);
    }

    std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                 sql::deadline until) override {
        check_usable(until);
        const auto wanted = packed(steps, orders_, afterwards);
        if (!wanted) return std::nullopt;
        auto done =
            call([wanted = *wanted](conversation& talk) { return talk.transact(wanted); }, until);
        const auto fate = done.affected();
        if (fate < 0) return std::nullopt;
        const auto* const terms = sql::transact_terms::current();
        if (fate > 0 && terms != nullptr) terms->rows() = std::move(done);
        return fate > 0;
    }

    [[nodiscard]] bool alive() const noexcept override {
        return guarded_ ? guarded_->alive() : worker_->alive();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return guarded_ ? guarded_->round_trips() : worker_->round_trips();
    }

private:
    template <typename Job>
    sql::result call(Job what, sql::deadline until) {
        try {
            if (guarded_) return guarded_->call(std::move(what), until);
            return worker_->call(std::move(what), until);
        } catch (const error& failure) {
            // This server does not, or no longer, accept writes; the next connection may be to one
            // that does.
            const bool cut_off = failure.native_code() == not_in_cluster;
            if (failure.kind() == errc::read_only || cut_off) discard();
            throw;
        }
    }

    void check_usable(sql::deadline until) const {
        if (home_ != ::getpid()) {
            throw error{errc::wrong_process,
                        "this connection belongs to the parent process: open another after fork()"};
        }
        if (!alive()) throw driver::already_dead();
        if (until <= steady_clock::now()) throw driver::too_late();
    }

    std::unique_ptr<worker> worker_;
    std::unique_ptr<guarded_connection> guarded_;
    order_book orders_;
    pid_t home_ = ::getpid();
};

}  // namespace

sql::connection_source open(const std::string& url, options options) {
    const auto to = std::make_shared<const target>(understand(url));
    const auto connect = [to, options](sql::deadline until) -> std::unique_ptr<sql::connection> {
        return std::make_unique<own_connection>(to, options, until);
    };
    return sql::connection_source{sql::dialect::mysql, connect, to->description}.with_tables(
        to->tables);
}

class connection_ref::session {
public:
    session(::sql::Connection* handle, const options& how) : talk{checked(handle), how, false} {}

    conversation talk;
    order_book orders;

private:
    static ::sql::Connection& checked(::sql::Connection* handle) {
        if (handle == nullptr) throw error{errc::invalid_options, "the MySQL handle is null"};
        return *handle;
    }
};

connection_ref::connection_ref(::sql::Connection* handle, options options)
    : session_{std::make_unique<session>(handle, options)} {}

connection_ref::~connection_ref() {
    put_settings_back();
}

sql::result connection_ref::execute(const sql::statement& what,
                                    std::span<const sql::value> parameters, sql::deadline until) {
    if (!session_->talk.alive()) throw driver::already_dead();
    if (until <= steady_clock::now()) throw driver::too_late();
    return session_->talk.execute(session_->orders.make(what, parameters));
}

sql::result connection_ref::query(std::string_view text, sql::deadline until) {
    if (!session_->talk.alive()) throw driver::already_dead();
    if (until <= steady_clock::now()) throw driver::too_late();
    return session_->talk.query(std::string{text});
}

bool connection_ref::alive() const noexcept {
    return session_->talk.alive();
}

std::uint64_t connection_ref::round_trips() const noexcept {
    return session_->talk.round_trips();
}

}  // namespace rowlock::mysql
