#include "transaction/advisory/advisory_protocol.hpp"

#include "base/ascii.hpp"
#include "sql/server_facts.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <random>

namespace rowlock::strategy {
namespace {

using sql::load_statement;
using std::chrono::milliseconds;

template <typename... Values>
sql::result run(sql::connection& db, const sql::statement& what, sql::deadline until,
                const Values&... values) {
    const std::array<sql::value, sizeof...(Values)> parameters{sql::value{values}...};
    return db.execute(what, parameters, until);
}

int as_number(bool yes) {
    return yes ? 1 : 0;
}

bool is_shared(advisory_mode mode) {
    return mode == advisory_mode::shared;
}

/// A random mark, different for each connection of any process.
std::string fresh_mark() {
    std::random_device random;
    std::string mark;
    for (int i = 0; i < 4; ++i) mark += std::to_string(random()) + (i < 3 ? "." : "");
    return mark;
}

void require_session(sql::connection& db, const server_session& session, std::int64_t process) {
    if (process == session.process) return;
    db.discard();
    throw error{errc::unsupported,
                "statements go to changing server processes, as behind a transaction pooler: "
                "connect to the database directly, or use session pooling"};
}

void require_writable(bool writable) {
    if (writable) return;
    throw error{errc::read_only,
                "this server is a standby or read-only and would grant locks that its primary "
                "knows nothing of: connect to the primary"};
}

[[noreturn]] void refuse_key(const char* what, sql::dialect speaks) {
    throw error{errc::unsupported, std::string{what} + " is no key of " +
                                       (speaks == sql::dialect::mysql
                                            ? "GET_LOCK: use a name or advisory_key::verbatim()"
                                            : "pg_advisory_lock: use a name, "
                                              "advisory_key::number() or advisory_key::pair()")};
}

/// Interprets the answer of try, and on MySQL that of wait.
bool granted(sql::connection& db, const server_session& session, const sql::result& row) {
    require_session(db, session, row.integer(0, 1));
    const auto answer = row.maybe_integer(0, 0);
    if (!answer) {
        throw error{errc::timed_out,
                    "the attempt was interrupted on the server (KILL QUERY, or no memory): nothing "
                    "was locked, repeat it"};
    }
    require_writable(*answer >= 0);
    return *answer == 1;
}

}  // namespace

std::string server_key::identity() const {
    if (text.empty()) return (pair ? "pair " : "number ") + std::to_string(bits);
    // MySQL compares names case-insensitively; all our keys there are ASCII.
    return ascii::lower(text);
}

server_key server_key_of(const advisory_key& key, sql::dialect speaks, std::string_view domain,
                         std::string_view schema) {
    const bool mysql = speaks == sql::dialect::mysql;
    switch (key.type()) {
        case advisory_key::kind::name:
            if (mysql) return {.text = advisory_text(key.str(), schema, domain)};
            return {.bits = advisory_number(key.str(), domain)};
        case advisory_key::kind::number:
            if (mysql) refuse_key("a number", speaks);
            return {.bits = key.bits()};
        case advisory_key::kind::pair:
            if (mysql) refuse_key("a pair of numbers", speaks);
            return {.bits = key.bits(), .pair = true};
        case advisory_key::kind::verbatim:
            if (!mysql) refuse_key("verbatim text", speaks);
            return {.text = key.str()};
    }
    throw error{errc::invalid_options, "an advisory key of an unknown kind"};
}

std::string call_of(std::string_view function, const server_key& key, advisory_mode mode) {
    std::string call{function};
    if (is_shared(mode)) call += "_shared";
    if (!key.pair) {
        // The least bigint cannot be written as a negated literal.
        return "pg_catalog." + call + "(cast(''" + std::to_string(key.bits) + "'' as bigint))";
    }
    const auto half = [](std::int64_t bits) {
        const auto number = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
        return "cast(''" + std::to_string(number) + "'' as int)";
    };
    return "pg_catalog." + call + "(" + half(key.bits >> 32) + ", " + half(key.bits) + ")";
}

std::string wait_text(milliseconds slice, const std::string& call, const std::string& mark) {
    static const sql::statement_set statements{sql::dialect::postgresql};
    const auto refusal =
        mark.empty() ? std::string{"false"}
                     : "coalesce(pg_catalog.current_setting(''rowlock.session'', true), '''') "
                       "operator(pg_catalog.<>) ''" +
                           mark + "''";
    return statements.text_of("advisory_wait",
                              {{"slice", std::to_string(std::max<std::int64_t>(1, slice.count()))},
                               {"call", call},
                               {"refusal", refusal}});
}

advisory_protocol::advisory_protocol(sql::dialect speaks)
    : speaks_{speaks},
      setup_{load_statement(speaks, "advisory_setup")},
      try_{load_statement(speaks, "advisory_try")},
      unlock_{load_statement(speaks, "advisory_unlock")},
      unlock_all_{load_statement(speaks, "advisory_unlock_all")},
      held_{load_statement(speaks, "advisory_held")} {
    if (is_mysql()) {
        wait_ = load_statement(speaks, "advisory_wait");
    } else {
        company_ = load_statement(speaks, "advisory_company");
    }
}

server_session advisory_protocol::set_up(sql::connection& db, milliseconds statement,
                                         milliseconds keepalive_timeout,
                                         sql::deadline until) const {
    if (!is_mysql()) {
        const std::string mark = fresh_mark();
        const auto row = run(db, setup_, until, std::to_string(statement.count()),
                             std::to_string(keepalive_timeout.count()), mark);
        if (row.integer(0, 1) == 0) {
            throw error{errc::unsupported,
                        "the server process of a new connection holds advisory locks already: a "
                        "transaction pooler shares it, or an earlier user of the connection left "
                        "them; connect to PostgreSQL directly"};
        }
        return {.process = row.integer(0, 0), .mark = mark};
    }
    const auto& facts = sql::facts_of(db, until);
    if (facts.member_of != sql::cluster::none) {
        throw error{errc::unsupported,
                    std::string{"this server is a "} + to_string(facts.member_of) +
                        ", and every other of them grants GET_LOCK for itself: use a lease, which "
                        "all of them certify"};
    }
    std::string settings = "set session autocommit = 1";
    settings += facts.mariadb ? ", max_statement_time = 0" : ", max_execution_time = 0";
    if (keepalive_timeout.count() > 0) {
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(keepalive_timeout);
        settings += ", wait_timeout = " + std::to_string(seconds.count());
    }
    db.query(settings, until);
    const auto row = run(db, setup_, until);
    return {.process = row.integer(0, 0), .schema = std::string{row.text(0, 1)}};
}

bool advisory_protocol::try_lock(sql::connection& db, const server_session& session,
                                 const server_key& key, advisory_mode mode,
                                 sql::deadline until) const {
    if (is_mysql()) return granted(db, session, run(db, try_, until, key.text));
    return granted(db, session,
                   run(db, try_, until, key.bits, as_number(key.pair), as_number(is_shared(mode)),
                       session.mark));
}

bool advisory_protocol::wait(sql::connection& db, const server_session& session,
                             const server_key& key, advisory_mode mode, milliseconds slice,
                             sql::deadline until) const {
    if (is_mysql()) {
        if (!sql::facts_of(db, until).mariadb) {
            slice = std::chrono::ceil<std::chrono::seconds>(slice);
        }
        return granted(db, session, run(db, *wait_, until, key.text, slice.count()));
    }
    db.query(wait_text(slice, call_of("pg_advisory_lock", key, mode), session.mark), until);
    const wanted one{key, mode};
    return held(db, session, {&one, 1}, until).front();
}

bool advisory_protocol::unlock(sql::connection& db, const server_session& session,
                               const server_key& key, advisory_mode mode,
                               sql::deadline until) const {
    const auto row = is_mysql() ? run(db, unlock_, until, key.text)
                                : run(db, unlock_, until, key.bits, as_number(key.pair),
                                      as_number(is_shared(mode)), session.mark);
    require_session(db, session, row.integer(0, 1));
    return row.maybe_integer(0, 0) == 1;
}

void advisory_protocol::unlock_all(sql::connection& db, sql::deadline until) const {
    run(db, unlock_all_, until);
}

std::vector<bool> advisory_protocol::held(sql::connection& db, const server_session& session,
                                          std::span<const wanted> locks,
                                          sql::deadline until) const {
    return is_mysql() ? held_mysql(db, session, locks, until)
                      : held_postgresql(db, session, locks, until);
}

advisory_protocol::company advisory_protocol::holder_status(sql::connection& db,
                                                            const server_session& session,
                                                            const server_key& key,
                                                            sql::deadline until) const {
    const auto row = run(db, *company_, until, key.bits, as_number(key.pair));
    require_session(db, session, row.integer(0, 2));
    if (row.integer(0, 0) == 0) return company::not_ours;
    return row.integer(0, 1) == 0 ? company::alone : company::names_with_waiters;
}

std::vector<bool> advisory_protocol::held_postgresql(sql::connection& db,
                                                     const server_session& session,
                                                     std::span<const wanted> locks,
                                                     sql::deadline until) const {
    const auto rows = run(db, held_, until);
    require_session(db, session, rows.integer(0, 0));
    require_writable(rows.integer(0, 1) == 0);
    const auto is_held = [&rows](const wanted& lock) {
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (rows.is_null(row, 2)) continue;
            if (rows.integer(row, 2) == lock.key.bits &&
                rows.integer(row, 3) == as_number(lock.key.pair) &&
                rows.integer(row, 4) == as_number(is_shared(lock.mode))) {
                return true;
            }
        }
        return false;
    };
    std::vector<bool> answers;
    answers.reserve(locks.size());
    for (const auto& lock : locks) answers.push_back(is_held(lock));
    return answers;
}

std::vector<bool> advisory_protocol::held_mysql(sql::connection& db, const server_session& session,
                                                std::span<const wanted> locks,
                                                sql::deadline until) const {
    constexpr std::size_t at_once = 8;
    std::vector<bool> answers;
    do {
        std::array<sql::value, at_once> names;
        // An empty name is an error on MySQL.
        names.fill(locks.empty() ? sql::value{"rowlock"} : sql::value{locks[0].key.text});
        const auto now = std::min(at_once, locks.size());
        for (std::size_t i = 0; i < now; ++i) names[i] = sql::value{locks[i].key.text};
        const auto row = db.execute(held_, names, until);
        require_session(db, session, row.integer(0, 0));
        require_writable(row.integer(0, 1) == 1);
        for (std::size_t i = 0; i < now; ++i) {
            answers.push_back(row.maybe_integer(0, 2 + i) == 1);
        }
        locks = locks.subspan(now);
    } while (!locks.empty());
    return answers;
}

}  // namespace rowlock::strategy
