#include "upkeep/blocking_transactions.hpp"

#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/session_settings.hpp"
#include "sql/statements.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <future>
#include <iomanip>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

using kind = blocking_transaction::kind;

/// Statements of rowlock's own last for less.
constexpr milliseconds least_age{200};

sql::statement load(const sql::connection& db, const sql::connection_source& source,
                    std::string_view name) {
    return sql::load_statement(db.speaks(), name, {.tables = source.tables()});
}

std::optional<milliseconds> age_at(const sql::result& rows, std::size_t row, std::size_t column) {
    const auto micros = rows.maybe_integer(row, column);
    if (!micros) return std::nullopt;
    return std::max(0ms, duration_cast<milliseconds>(microseconds{*micros}));
}

std::string text_at(const sql::result& rows, std::size_t row, std::size_t column) {
    return std::string{rows.text(row, column)};
}

/// A literal of standard SQL.
std::string sql_literal(std::string_view text) {
    std::string made = "'";
    for (const char c : text) made += c == '\'' ? std::string{"''"} : std::string{c};
    return made + "'";
}

// --- PostgreSQL ----------------------------------------------------------------------------------

blocking_transaction postgresql_one(const sql::result& rows, std::size_t row) {
    blocking_transaction one{.of = rows.integer(row, 0) == 1 ? kind::prepared : kind::ordinary};
    one.pid = rows.maybe_integer(row, 1).value_or(0);
    one.gid = text_at(rows, row, 2);
    one.user = text_at(rows, row, 3);
    one.application_name = text_at(rows, row, 4);
    one.state = text_at(rows, row, 5);
    one.age = age_at(rows, row, 6);
    one.statement_age = age_at(rows, row, 7);
    if (one.of == kind::ordinary) {
        one.how_to_end = "select pg_terminate_backend(" + std::to_string(one.pid) + ")";
        return one;
    }
    // A backslash would need another kind of literal; a standard one contains it as it is.
    one.how_to_end = "rollback prepared " + sql_literal(one.gid) + ", in database " +
                     text_at(rows, row, 8) + ", as " + one.user + " or a superuser";
    return one;
}

blocking_transactions postgresql_all(const sql::result& rows) {
    blocking_transactions all;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        auto one = postgresql_one(rows, row);
        if (one.of == kind::ordinary && one.age && *one.age < least_age) continue;
        if (rows.integer(row, 9) == 0) {
            all.note =
                "this user may not see the state and age of other users' transactions: grant "
                "pg_read_all_stats";
        }
        one.one_of_several = rows.integer(row, 10) == 0;
        all.found.push_back(std::move(one));
    }
    const auto guessed = std::ranges::count(all.found, true, &blocking_transaction::one_of_several);
    for (auto& each : all.found) each.one_of_several = each.one_of_several && guessed > 1;
    return all;
}

// --- MySQL and MariaDB ---------------------------------------------------------------------------

/// A literal of the bytes, readable where they are.
std::string xa_literal(std::string_view bytes) {
    const bool plain = std::ranges::all_of(
        bytes, [](char c) { return c >= ' ' && c <= '~' && c != '\'' && c != '\\'; });
    if (plain) return sql_literal(bytes);
    std::string made = "X'";
    for (const char c : bytes) {
        std::array<char, 3> two{};
        std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned char>(c));
        made += two.data();
    }
    return made + "'";
}

/// All that `xa recover` lists.
blocking_transactions recover(sql::connection& db, const sql::connection_source& source,
                              sql::deadline until) {
    blocking_transactions all;
    try {
        const auto rows = db.query(load(db, source, "prepared_transactions").text(), until);
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const auto of_global = static_cast<std::size_t>(rows.integer(row, 1));
            const auto data = rows.text(row, 3);
            const std::string id = xa_literal(data.substr(0, of_global)) + "," +
                                   xa_literal(data.substr(std::min(of_global, data.size()))) + "," +
                                   text_at(rows, row, 0);
            all.found.push_back(
                {.of = kind::prepared, .gid = id, .how_to_end = "xa rollback " + id});
        }
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
        all.note =
            "this user may not see which transactions were prepared: grant xa_recover_admin, and "
            "run `xa recover`";
    }
    return all;
}

/// One connection asks for the rows; the other one looks for whom it waits, and stops it.
class mysql_reading {
public:
    mysql_reading(const sql::connection_source& source, sql::deadline until)
        : source_{source},
          until_{until},
          asking_{sql::connect_stated(source, until)},
          looking_{sql::connect_stated(source, until)},
          candidates_{load(*looking_, source, "blocking_candidates")},
          blockers_{load(*looking_, source,
                         sql::facts_of(*looking_, until).mariadb ? "blockers_on_mariadb"
                                                                 : "blockers_on_mysql")} {
        asking_->query(
            "set session autocommit = 1, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1",
            until);
        id_ = asking_->query("select connection_id()", until).integer(0, 0);
    }

    blocking_transactions read(std::string_view name) {
        const sql::value of{name};
        for (const char* what : {"ask_for_lease", "ask_for_permits"}) {
            ask(load(*asking_, source_, what), of);
        }
        const auto holders =
            sql::run(*looking_, load(*looking_, source_, "sessions_of_name"), until_, name);
        const auto ask_session = load(*asking_, source_, "ask_for_session");
        for (std::size_t row = 0; row < holders.rows(); ++row) {
            ask(ask_session, sql::value{holders.integer(row, 0)});
        }
        return std::move(all_);
    }

private:
    /// The server renews what it shows when nobody has read it for 100 ms.
    static constexpr milliseconds between{120};
    static constexpr milliseconds longest{800};

    void ask(const sql::statement& what, const sql::value& of) {
        // Ends after a second at the latest, whatever happens here.
        auto answer = std::async(std::launch::async, [&] {
            try {
                static_cast<void>(asking_->execute(what, std::span{&of, 1}, until_));
            } catch (const error& failure) {
                if (failure.kind() == errc::access_denied) return false;
            }
            return true;
        });
        const auto end = std::chrono::steady_clock::now() + longest;
        while (answer.wait_for(between) != std::future_status::ready) {
            const bool late = std::chrono::steady_clock::now() >= end;
            if (!look(blockers_) && !late) continue;
            if (all_.found.empty() && all_.note.empty()) guess();
            if (unreadable_) {
                all_.note =
                    "MySQL cannot show its transactions while a statement has a character that "
                    "utf8mb3 lacks (error 3854): ask again";
            }
            looking_->query("kill query " + std::to_string(id_), until_);
            break;
        }
        if (!answer.get()) {
            all_.note =
                "this user may not lock the rows, so it cannot be seen who does: grant update";
        }
    }

    /// Whether there is nothing more to be seen.
    bool look(const sql::statement& at) {
        sql::result rows;
        try {
            rows = sql::run(*looking_, at, until_, id_);
        } catch (const error& failure) {
            constexpr int cannot_convert = 3854;
            unreadable_ = failure.native_code() == cannot_convert;
            if (unreadable_) return false;
            if (failure.kind() != errc::access_denied) throw;
            all_.note =
                "another transaction has locked a row of this lock; this user may not see which: "
                "grant process on *.*, and on MySQL select on performance_schema.*";
            return true;
        }
        unreadable_ = false;
        for (std::size_t row = 0; row < rows.rows(); ++row) add(rows, row);
        return !rows.empty();
    }

    /// Where the server does not show who waits for whom.
    void guess() {
        look(candidates_);
        for (auto& each : all_.found) each.one_of_several = all_.found.size() > 1;
    }

    void add(const sql::result& rows, std::size_t row) {
        const auto pid = rows.integer(row, 0);
        const auto age = age_at(rows, row, 4);
        if (pid == 0) return add_prepared(age);
        if (std::ranges::find(all_.found, pid, &blocking_transaction::pid) != all_.found.end()) {
            return;
        }
        blocking_transaction one{.of = kind::ordinary, .pid = pid};
        one.user = text_at(rows, row, 1);
        one.application_name = text_at(rows, row, 2);
        one.state = text_at(rows, row, 3);
        one.age = age;
        if (const auto seconds = rows.maybe_integer(row, 5)) {
            one.statement_age = std::chrono::seconds{*seconds};
        }
        one.how_to_end = "kill " + std::to_string(pid);
        all_.found.push_back(std::move(one));
    }

    /// The server does not say which of the prepared transactions one without a connection is.
    void add_prepared(std::optional<milliseconds> age) {
        if (std::ranges::find(all_.found, kind::prepared, &blocking_transaction::of) !=
            all_.found.end()) {
            return;
        }
        auto candidates = recover(*looking_, source_, until_);
        if (!candidates.note.empty()) all_.note = candidates.note;
        if (candidates.found.empty()) {
            candidates.found.push_back(
                {.of = kind::prepared, .how_to_end = "xa rollback …, by what `xa recover` lists"});
        }
        for (auto& each : candidates.found) {
            each.one_of_several = candidates.found.size() > 1;
            each.age = each.one_of_several ? std::nullopt : age;
        }
        std::ranges::move(candidates.found, std::back_inserter(all_.found));
    }

    const sql::connection_source& source_;
    const sql::deadline until_;
    std::unique_ptr<sql::connection> asking_, looking_;
    const sql::statement candidates_, blockers_;
    std::int64_t id_ = 0;
    bool unreadable_ = false;  ///< the last look failed, by the text of some statement
    blocking_transactions all_{};
};

// --- SQLite --------------------------------------------------------------------------------------

/// The device and inode of a file, as /proc/locks writes them.
std::string inode_text(const struct stat& file) {
    std::ostringstream text;
    text << std::hex << std::setfill('0') << std::setw(2) << major(file.st_dev) << ':'
         << std::setw(2) << minor(file.st_dev) << ':' << std::dec << file.st_ino;
    return text.str();
}

/// The process that has the write lock of a WAL database: a lock on one byte of the -shm file
/// (https://sqlite.org/walformat.html). /proc shows it. To ask through a descriptor of our own
/// would release this process's own locks on that file when the descriptor is closed.
std::optional<std::int64_t> write_locker(const std::string& inode) {
    std::ifstream locks{"/proc/locks"};
    for (std::string line; std::getline(locks, line);) {
        std::istringstream words{line};
        std::string number, type, advisory, access, where, first;
        std::int64_t pid = 0;
        words >> number >> type >> advisory >> access >> pid >> where >> first;
        constexpr const char* write_lock = "120";
        if (words && access == "WRITE" && where == inode && first == write_lock) return pid;
    }
    return std::nullopt;
}

blocking_transactions sqlite_writer(sql::connection& db, const sql::connection_source& source,
                                    sql::deadline until) {
    const auto rows = sql::run(db, load(db, source, "database_file"), until);
    struct stat file {};
    if (rows.empty() || stat((text_at(rows, 0, 0) + "-shm").c_str(), &file) != 0) return {};
    const std::string inode = inode_text(file);
    const auto pid = write_locker(inode);
    if (!pid) return {};
    std::this_thread::sleep_for(least_age);
    if (write_locker(inode) != pid) return {};
    return {.found = {{.of = kind::ordinary,
                       .pid = *pid,
                       .state = "has the file's write lock",
                       .how_to_end =
                           "let the process end its transaction, or kill " + std::to_string(*pid)}},
            .note = {}};
}

}  // namespace

blocking_transactions read_blocking_transactions(const sql::connection_source& source,
                                                 std::string_view name, sql::deadline until) {
    if (source.speaks() == sql::dialect::mysql) return mysql_reading{source, until}.read(name);
    const auto db = sql::connect_stated(source, until);
    if (db->speaks() == sql::dialect::sqlite) return sqlite_writer(*db, source, until);
    return postgresql_all(sql::run(*db, load(*db, source, "blocking_transactions"), until, name));
}

blocking_transactions read_prepared_transactions(const sql::connection_source& source,
                                                 sql::deadline until) {
    if (source.speaks() == sql::dialect::sqlite) return {};
    const auto db = sql::connect_stated(source, until);
    if (db->speaks() == sql::dialect::mysql) return recover(*db, source, until);
    const auto table = [&](const char* of) {
        return sql::qualify(of, db->speaks(), source.tables());
    };
    return postgresql_all(sql::run(*db, load(*db, source, "prepared_transactions"), until,
                                   table("rowlock_lock"), table("rowlock_hold"),
                                   table("rowlock_session")));
}

}  // namespace rowlock::detail
