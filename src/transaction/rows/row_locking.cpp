#include "transaction/rows/row_locking.hpp"

#include "base/ascii.hpp"
#include "sql/database_traits.hpp"
#include "sql/identifier.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <tuple>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// MySQL and MariaDB: FORCE INDEX names an index that is not there, or that may not be used.
constexpr int no_such_index = 1176;
// innodb_lock_wait_timeout
constexpr int lock_wait_timeout = 1205;
// MySQL: a value has letters that the column's character set lacks; MariaDB turns them into `?`.
constexpr int no_such_letter = 3988;
// Practically no wait, but still in the future when the driver checks it.
constexpr milliseconds at_once = 10ms;

[[noreturn]] void time_is_up() {
    throw error{errc::timed_out, "there was no time left to wait for a row; nothing was sent"};
}

/// Limits a wait to the time that is left.
milliseconds clamped(milliseconds wait, sql::deadline last) {
    const auto left = std::chrono::floor<milliseconds>(last - steady_clock::now());
    if (left < 1ms) time_is_up();
    return std::clamp(wait, 1ms, left);
}

sql::deadline deadline_of(const row_request& wanted) {
    const auto wait = wanted.wait.how() == row_wait::kind::bounded       ? wanted.wait.limit()
                      : wanted.wait.how() == row_wait::kind::skip_locked ? wanted.statement_timeout
                                                                         : 0ms;
    return std::min(wanted.last, steady_clock::now() + wait + wanted.statement_timeout);
}

std::string in_seconds(milliseconds time) {
    const auto rest = std::to_string(1000 + time.count() % 1000);
    return std::to_string(time.count() / 1000) + "." + rest.substr(1);
}

// --- values --------------------------------------------------------------------------------------

/// The key's values, converted to what the columns need: InnoDB uses no index to compare a text
/// column with a number, and would lock all that it reads.
class bound_values {
public:
    bound_values(const known_key& key, const row_key& given) {
        if (given.values().size() != key.columns.size()) {
            throw error{errc::invalid_options, "a row's key has as many values as columns"};
        }
        texts_.reserve(key.columns.size());
        for (std::size_t i = 0; i < key.columns.size(); ++i) {
            values_.push_back(fit(given.values()[i], key.columns[i]));
        }
    }

    [[nodiscard]] const std::vector<sql::value>& values() const noexcept { return values_; }
    /// Whether these values get the same plan as all others.
    [[nodiscard]] bool usual() const noexcept { return usual_; }

private:
    sql::value fit(const sql::value& given, const known_key::column& column) {
        if (given.is_null()) {
            throw error{errc::invalid_options,
                        "a row's key cannot hold NULL, which a unique index lets many rows have"};
        }
        const bool integer = given.type() == sql::value::kind::integer;
        if (column.holds == known_key::kind::text && integer) {
            return sql::value{texts_.emplace_back(std::to_string(given.integer()))};
        }
        if (column.holds == known_key::kind::integer && !integer)
            return number(given.text(), column);
        return given;
    }

    /// Text that no integer column holds would be compared as floating point, by a scan.
    sql::value number(std::string_view text, const known_key::column& column) {
        const auto end = text.data() + text.size();
        std::int64_t parsed = 0;
        if (const auto [stop, failure] = std::from_chars(text.data(), end, parsed);
            failure == std::errc{} && stop == end) {
            return sql::value{parsed};
        }
        std::uint64_t greater = 0;
        if (const auto [stop, failure] = std::from_chars(text.data(), end, greater);
            failure == std::errc{} && stop == end) {
            usual_ = false;
            return sql::value{text};
        }
        throw error{errc::invalid_options, "the key column " + column.name +
                                               " holds integers; give it one, not other text"};
    }

    bool usual_ = true;
    std::vector<std::string> texts_;  // never grows again: values view them
    std::vector<sql::value> values_;
};

// --- text ----------------------------------------------------------------------------------------

std::string_view suffix_of(row_wait wait) {
    switch (wait.how()) {
        case row_wait::kind::bounded:
            break;
        case row_wait::kind::nowait:
            return " nowait";
        case row_wait::kind::skip_locked:
            return " skip locked";
    }
    return "";
}

std::string select_list(sql::dialect speaks, const row_request& wanted, std::string_view table) {
    std::string list;
    const auto add = [&](std::string_view column) {
        if (!list.empty()) list += ", ";
        list.append(table).append(sql::quoted(speaks, column));
    };
    for (const auto& column : wanted.read) add(column);
    if (wanted.read.empty()) std::ranges::for_each(wanted.columns.names(), add);
    return list;
}

/// For a text column of another character set than the connection's. Converts the value, never the
/// column, whose index would then be useless. Letters that the character set lacks become `?`; the
/// second comparison, of constants, ensures that such a key finds nothing.
std::string converted_equal(const known_key::column& column, const std::string& parameter) {
    const std::string value = "convert(" + parameter + " using " + column.charset + ")";
    return " = " + value + " collate " + column.collation + " and convert(" + value +
           " using utf8mb4) collate utf8mb4_bin = convert(" + parameter + " using utf8mb4)";
}

std::string condition(const known_key& key, std::string_view table) {
    std::string text;
    for (std::size_t i = 0; i < key.columns.size(); ++i) {
        const auto& column = key.columns[i];
        const std::string parameter = "$" + std::to_string(i + 1);
        text.append(i == 0 ? " where " : " and ").append(table).append(column.name);
        text +=
            column.charset.empty() ? column.equals + parameter : converted_equal(column, parameter);
    }
    return text;
}

// --- PostgreSQL ----------------------------------------------------------------------------------

// PostgreSQL locks the rows that come out of the plan and no others, whatever the plan. The search
// path is the caller's, so types, functions and operators name their schema.
//
// A bounded wait in a transaction of ours sets the timeout in the same statement: the row to lock
// comes out of a join with the one row of `waiting`, so the setting is made before the wait begins.
std::string postgresql_text(const known_key& key, const row_request& wanted) {
    const bool sets = wanted.wait.how() == row_wait::kind::bounded && !wanted.borrowed;
    std::string text;
    if (sets) {
        text = "with waiting as materialized (select pg_catalog.set_config('lock_timeout', $" +
               std::to_string(key.columns.size() + 1) + "::pg_catalog.text, true)) ";
    }
    text += "select " + select_list(sql::dialect::postgresql, wanted, "t.") + " from " +
            (sets ? "waiting, " : "") + key.table + " t" + condition(key, "t.") +
            " for update of t";
    return text.append(suffix_of(wanted.wait));
}

/// Sets the transaction's lock_timeout and restores it. After an error the rollback restores it.
class borrowed_timeout {
public:
    borrowed_timeout(sql::connection& db, milliseconds wait, sql::deadline until) : db_{db} {
        before_ = run(db, exchange(), until, std::to_string(wait.count())).text(0, 0);
    }

    void restore(sql::deadline until) { run(db_, exchange(), until, before_); }

private:
    // Columns are evaluated from left to right.
    static const sql::statement& exchange() {
        static const sql::statement text{
            "select pg_catalog.current_setting('lock_timeout'), "
            "pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)"};
        return text;
    }

    sql::connection& db_;
    std::string before_;
};

/// Translates PostgreSQL's errors for a value that does not fit its column's type, and for a
/// statement prepared before a column got another type.
[[noreturn]] void explain_refusal(const error& failure, row_keys& keys, const known_key& key,
                                  const std::string& text, const row_request& wanted) {
    const std::string_view state = failure.sqlstate();
    const bool altered = state == "0A000" || state == "42883";
    const bool misfit = state == "22003" || state == "22007" || state == "22008" ||
                        state == "22P02" || state == "22P03";
    if (!altered && !misfit) throw error{failure};
    keys.forget_statement(text);
    keys.forget(wanted.table, wanted.columns);
    error::server_report report{failure.sqlstate(), failure.native_code(),
                                failure.server_message()};
    if (altered) {
        throw error{errc::conflict,
                    "the columns of " + key.table + " were altered: run the transaction again",
                    std::move(report)};
    }
    throw error{errc::invalid_options,
                "a value of this key cannot be one of its column in " + key.table +
                    ": give it in the column's type",
                std::move(report)};
}

/// The version of the row that a plain read sees, empty if there is none.
std::string version_seen(sql::connection& db, row_keys& keys, const known_key& key,
                         const bound_values& bound, sql::deadline until) {
    const std::string text =
        "select pg_catalog.format('%s %s %s', t.tableoid, t.ctid, t.xmin) from " + key.table +
        " t" + condition(key, "t.") + " limit 1";
    const auto row = db.execute(keys.statement(text), bound.values(), until);
    return row.empty() ? std::string{} : std::string{row.text(0, 0)};
}

// At READ COMMITTED a row that was deleted and inserted anew by the transaction that we waited for
// is not in our statement's snapshot. So "no such row" counts only if a plain read, whose snapshot
// is from after the wait, sees none either. If that read sees a row, we lock again, and may again
// wait behind a transaction that replaces it, as often as that happens. If the same version is
// there before and after an attempt that did not find it, a policy keeps it from being locked.
sql::result lock_on_postgresql(sql::connection& db, row_keys& keys, const known_key& key,
                               const row_request& wanted) {
    const bound_values bound{key, wanted.values};
    const auto text = postgresql_text(key, wanted);
    const auto statement = keys.statement(text);
    const bool bounded = wanted.wait.how() == row_wait::kind::bounded;
    const auto until = deadline_of(wanted);
    const auto end = steady_clock::now() + wanted.wait.limit();
    std::optional<borrowed_timeout> timeout;
    if (bounded && wanted.borrowed) {
        timeout.emplace(db, clamped(wanted.wait.limit(), wanted.last), until);
    }
    sql::result row;
    for (std::string before;;) {
        auto parameters = bound.values();
        std::string wait;
        if (bounded && !wanted.borrowed) {
            const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
            wait = std::to_string(clamped(left, wanted.last).count());
            parameters.emplace_back(wait);
        }
        try {
            row = db.execute(statement, parameters, until);
        } catch (const error& failure) {
            explain_refusal(failure, keys, key, text, wanted);
        }
        if (!row.empty() || wanted.wait.how() == row_wait::kind::skip_locked) break;
        auto seen = version_seen(db, keys, key, bound, until);
        if (seen.empty()) break;
        if (seen == before) {
            throw error{errc::access_denied, "the row of " + key.table +
                                                 " may be read and not locked: a row security "
                                                 "policy keeps it from being updated"};
        }
        before = std::move(seen);
    }
    if (timeout) timeout->restore(until);
    return row;
}

// --- MySQL, MariaDB ------------------------------------------------------------------------------

// MariaDB ends a statement at its own time limit, to the millisecond. innodb_lock_wait_timeout has
// whole seconds and must not come first. Both apply to this statement only.
std::string mariadb_limits(milliseconds time) {
    return "set statement max_statement_time = " + in_seconds(time) +
           ", innodb_lock_wait_timeout = " +
           std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count() + 1) + " for ";
}

/// The time limit of a locking read, as text.
struct time_limit {
    std::string before;  ///< MariaDB: goes before the statement
    std::string hint;    ///< MySQL: goes after SELECT; also ends a wait for a row
};

// A statement with SKIP LOCKED waits for no row; it may wait for a table that is being altered.
time_limit limit_of(row_wait wait, milliseconds time, bool mariadb) {
    if (wait.how() == row_wait::kind::nowait) return {};
    if (mariadb) return {mariadb_limits(time), {}};
    return {{}, "/*+ MAX_EXECUTION_TIME(" + std::to_string(time.count()) + ") */ "};
}

std::string mysql_select(const known_key& key, const row_request& wanted, std::string_view hint) {
    std::string text{"select "};
    text.append(hint).append(select_list(sql::dialect::mysql, wanted, ""));
    text.append(" from " + key.table + " force index (" + key.index + ")" + condition(key, "") +
                " for update");
    text.append(suffix_of(wanted.wait));
    if (key.alterations > 0) text += " /* " + std::to_string(key.alterations) + " */";
    return text;
}

enum class plan : unsigned char { by_index, no_such_key, scan };

plan plan_of(const sql::result& explained) {
    // MySQL has two more columns than MariaDB, one of them before the access type.
    const std::size_t type = explained.columns() > 10 ? 4 : 3;
    if (explained.empty() || explained.columns() < 10) return plan::scan;
    const auto access = explained.text(0, type);
    const auto extra = explained.text(0, explained.columns() - 1);
    if (access == "const" || access == "eq_ref") return plan::by_index;
    if (extra.find("const table") != std::string_view::npos) return plan::by_index;
    // The optimizer found the key impossible and read no table.
    return access.empty() && explained.is_null(0, 2) ? plan::no_such_key : plan::scan;
}

// Runs EXPLAIN on the very statement, with its FOR UPDATE. For a unique key EXPLAIN already reads
// the row, so it locks the row that is wanted, waits for it no longer than the statement, and makes
// no snapshot.
void check_plan(sql::connection& db, row_keys& keys, const known_key& key,
                const row_request& wanted, const time_limit& limit, const bound_values& bound) {
    // For the other types the plan may depend on the value, such as an invalid date.
    const bool same_for_all = std::ranges::none_of(
        key.columns, [](const auto& each) { return each.holds == known_key::kind::any; });
    if (same_for_all && bound.usual() && *key.plan_checked) return;
    // MySQL may be configured with another format.
    const std::string text =
        limit.before + "explain format=traditional " + mysql_select(key, wanted, limit.hint);
    const auto found =
        plan_of(db.execute(keys.statement(text), bound.values(), deadline_of(wanted)));
    if (found == plan::scan) {
        throw error{errc::unindexed_key,
                    "the server would not use the unique index " + key.index + " of " + key.table +
                        " for this key, and would lock every row that it reads: give values of "
                        "the columns' types"};
    }
    if (found == plan::by_index) *key.plan_checked = true;
}

sql::result lock_by_index(sql::connection& db, row_keys& keys, const known_key& key,
                          const row_request& wanted) {
    const bound_values bound{key, wanted.values};
    const auto& facts = sql::facts_of(db, deadline_of(wanted));
    const bool bounded = wanted.wait.how() == row_wait::kind::bounded;
    auto time = bounded ? wanted.wait.limit() : wanted.statement_timeout;
    const auto end = steady_clock::now() + time;
    bool plan_checked = false;
    for (;;) {
        const auto limit = limit_of(wanted.wait, clamped(time, wanted.last), facts.mariadb);
        try {
            if (!plan_checked) check_plan(db, keys, key, wanted, limit, bound);
            // The analyzer does not see the next iteration, which a failure begins.
            plan_checked = true;  // NOLINT(clang-analyzer-deadcode.DeadStores)
            return db.execute(keys.statement(limit.before + mysql_select(key, wanted, limit.hint)),
                              bound.values(), deadline_of(wanted));
        } catch (const error& failure) {
            // MySQL's innodb_lock_wait_timeout came first. If it ends the whole transaction, there
            // is none left to lock a row in.
            const bool early = failure.native_code() == lock_wait_timeout && !facts.mariadb &&
                               !facts.rolls_back_on_timeout && bounded && db.alive();
            time = std::chrono::ceil<milliseconds>(end - steady_clock::now());
            if (!early || time <= 0ms) throw;
        }
    }
}

/// Looks the key up again if the server misses an index that was dropped since the last lookup.
sql::result lock_on_mysql(sql::connection& db, row_keys& keys, const known_key& key,
                          const row_request& wanted) {
    try {
        return lock_by_index(db, keys, key, wanted);
    } catch (const error& failure) {
        if (failure.native_code() == no_such_letter) return sql::result{};
        if (failure.native_code() != no_such_index) throw;
    }
    keys.forget(wanted.table, wanted.columns);
    const auto again =
        keys.find(db, wanted.table, wanted.columns, wanted.index_cache_ttl, deadline_of(wanted));
    try {
        return lock_by_index(db, keys, again, wanted);
    } catch (const error& failure) {
        if (failure.native_code() != no_such_index) throw;
        keys.forget(wanted.table, wanted.columns);
        throw error{errc::unindexed_key, "the unique index " + again.index + " of " + again.table +
                                             " is invisible or ignored, so all rows would be "
                                             "read and locked: make it visible"};
    }
}

// --- SQLite --------------------------------------------------------------------------------------

sql::result lock_on_sqlite(sql::connection& db, row_keys& keys, const known_key& key,
                           const row_request& wanted) {
    const bound_values bound{key, wanted.values};
    if (wanted.borrowed) {
        // A transaction that has only read holds no lock that excludes others. This DELETE matches
        // no row, fires no trigger and takes the write lock.
        const auto wait = wanted.wait.how() == row_wait::kind::bounded
                              ? clamped(wanted.wait.limit(), wanted.last)
                              : at_once;
        const auto take = keys.statement("delete from " + key.table + " where 0");
        db.execute(take, {}, steady_clock::now() + std::max(wait, at_once));
    }
    // Qualified: SQLite treats a quoted name that is not a column as a string.
    const auto text = "select " + select_list(sql::dialect::sqlite, wanted, "t.") + " from " +
                      key.table + " as t" + condition(key, "t.");
    return db.execute(keys.statement(text), bound.values(), deadline_of(wanted));
}

// --- order ---------------------------------------------------------------------------------------

std::string folded(std::string_view text) {
    return ascii::lower(text.substr(0, text.find_last_not_of(' ') + 1));
}

/// Ranks numbers before text, as numbers; text without ASCII case and trailing blanks, so that
/// spellings that a collation treats as equal sort alike, then by its bytes.
auto rank_of(const sql::value& one) {
    return std::tuple{one.type() == sql::value::kind::text, one.integer(), folded(one.text()),
                      std::string{one.text()}};
}

}  // namespace

std::optional<table_row> lock_one(sql::connection& db, row_keys& keys, const row_request& wanted) {
    const auto speaks = db.speaks();
    require_usable(wanted.wait, speaks);
    const auto key =
        keys.find(db, wanted.table, wanted.columns, wanted.index_cache_ttl,
                  std::min(wanted.last, steady_clock::now() + wanted.statement_timeout));
    sql::result row;
    switch (speaks) {
        case sql::dialect::postgresql:
            row = lock_on_postgresql(db, keys, key, wanted);
            break;
        case sql::dialect::mysql:
            row = lock_on_mysql(db, keys, key, wanted);
            break;
        case sql::dialect::sqlite:
            row = lock_on_sqlite(db, keys, key, wanted);
            break;
    }
    if (row.empty()) return std::nullopt;
    if (row.rows() > 1) {
        throw error{errc::unindexed_key,
                    "the key finds " + std::to_string(row.rows()) + " rows of " + key.table +
                        ": its unique index compares in another way than the column; name a key "
                        "that is unique as the column compares"};
    }
    auto names = wanted.read;
    if (names.empty()) {
        for (const auto name : wanted.columns.names()) names.emplace_back(name);
    }
    return table_row{std::move(names), std::move(row)};
}

void insert_resource(sql::connection& db, row_keys& keys, const sql::statement& insert,
                     std::string_view name, row_wait wait, milliseconds statement_timeout,
                     sql::deadline last) {
    const auto time = clamped(
        wait.how() == row_wait::kind::bounded ? std::max(wait.limit(), at_once) : at_once, last);
    const auto until = std::min(last, steady_clock::now() + time + statement_timeout);
    const auto wait_text = std::to_string(time.count());
    const std::array<sql::value, 2> parameters{sql::value{name}, sql::value{wait_text}};
    if (sets_lock_timeout(db.speaks())) {
        db.execute(keys.statement(insert.text()), parameters, until);
        return;
    }
    // MySQL has no time limit for a write.
    std::string limits;
    if (db.speaks() == sql::dialect::mysql && sql::facts_of(db, until).mariadb) {
        limits = mariadb_limits(time);
    }
    db.execute(keys.statement(limits + insert.text()), std::span{parameters}.first(1), until);
}

bool sets_lock_timeout(sql::dialect speaks) noexcept {
    return speaks == sql::dialect::postgresql;
}

std::vector<std::size_t> locking_order(const key_columns& columns,
                                       const std::vector<row_key>& keys) {
    std::vector<std::pair<std::string, std::size_t>> places;
    for (std::size_t i = 0; i < columns.names().size(); ++i) {
        places.emplace_back(folded(columns.names()[i]), i);
    }
    std::ranges::sort(places);
    using rank = std::vector<decltype(rank_of(sql::value{}))>;
    std::vector<rank> ranks;
    ranks.reserve(keys.size());
    for (const auto& key : keys) {
        rank made;
        for (const auto& [name, place] : places) {
            if (place < key.values().size()) made.push_back(rank_of(key.values()[place]));
        }
        ranks.push_back(std::move(made));
    }
    std::vector<std::size_t> order(keys.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](auto a, auto b) { return ranks[a] < ranks[b]; });
    return order;
}

void refuse_cluster(sql::connection& db, bool accepted, sql::deadline until) {
    const auto& facts = sql::facts_of(db, until);
    if (accepted || facts.member_of == sql::cluster::none) return;
    throw error{errc::unsupported,
                std::string{"this is a "} + to_string(facts.member_of) +
                    ": another of them would grant the same row to another transaction, and one of "
                    "the two would fail at its commit. Use leases with fence(), or set "
                    "accept_double_grants_in_cluster"};
}

void require_usable(row_wait wait, sql::dialect speaks) {
    if (wait.how() == row_wait::kind::skip_locked && sql::traits_of(speaks).one_writer) {
        throw error{errc::unsupported,
                    "SQLite locks the whole file, so there are no locked rows to skip: use nowait"};
    }
    if (wait.how() == row_wait::kind::bounded && (wait.limit() < 1ms || wait.limit() > 24h)) {
        throw error{errc::invalid_options,
                    "a bounded wait is from 1 ms to 24 h; use nowait for no wait"};
    }
}

}  // namespace rowlock::detail
