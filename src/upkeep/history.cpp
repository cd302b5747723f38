#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/damaged.hpp"
#include "sql/run_statement.hpp"
#include "sql/session_settings.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>
#include <rowlock/history.hpp>
#include <rowlock/lock_name.hpp>

#include <algorithm>
#include <array>
#include <ostream>

namespace rowlock {
namespace {

constexpr std::int64_t piece = 1'000;  // rows per round trip
constexpr std::chrono::seconds whole_reading{60};

using micros_time = std::chrono::sys_time<std::chrono::microseconds>;

constexpr std::array names{"granted",      "handed_over",    "taken_over",    "reclaimed",
                           "released",     "expired",        "forced",        "downgraded",
                           "capacity_set", "deleted",        "altered",       "queued",
                           "left",         "session_opened", "session_ended", "session_expired",
                           "renewed",      "asked",          "upgraded"};

/// A kind that a later rowlock recorded reads as `altered`.
history_kind kind_named(std::string_view text) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (text == names.at(i)) return static_cast<history_kind>(i);
    }
    return history_kind::altered;
}

micros_time time_of(std::int64_t micros) {
    return micros_time{std::chrono::microseconds{micros}};
}

/// As the fragment held_now says it.
void read_state(history_record& one, std::optional<std::int64_t> state) {
    if (!state) return;
    one.now = *state == 0 ? hold_now::ended : *state == 1 ? hold_now::held : hold_now::over;
    if (one.now == hold_now::over) one.over_since = time_of(*state);
}

history_record read_row(const sql::result& rows, std::size_t row) {
    const auto number = [&](std::size_t column) { return sql::shown_integer(rows, row, column); };
    const auto text = [&](std::size_t column) { return std::string{rows.text(row, column)}; };
    history_record one;
    one.id = number(0);
    one.at = time_of(number(1));
    one.age = std::chrono::microseconds{number(2)};
    one.kind = kind_named(rows.text(row, 3));
    one.name = text(4);
    one.token = fencing_token{number(5)};
    one.session = session_id{number(6)};
    one.grant_id = grant_id{number(7)};
    one.ticket = ticket_no{number(8)};
    one.previous_session = session_id{number(9)};
    if (!rows.is_null(row, 10)) one.ends_at = time_of(number(10));
    one.owner = text(11);
    one.host = text(12);
    one.pid = number(13);
    one.program = text(14);
    one.note = text(15);
    one.db_user = text(16);
    if (const auto kind = rows.maybe_integer<protocol::counter_kind>(row, 17)) {
        one.of = *kind == protocol::counter_kind::shared_mutex ? history_of::shared_mutex
                                                               : history_of::semaphore;
    }
    one.permits = number(18);
    one.reason = text(19);
    read_state(one, rows.maybe_integer(row, 20));
    return one;
}

void validate(const history_query& query) {
    if (!query.name.empty()) (void)lock_name{query.name};
    if (query.limit < 1 || query.limit > 1'000'000) {
        throw error{errc::invalid_options, "the limit of a history must be 1 to 1 000 000"};
    }
}

sql::result read_piece(sql::connection& db, const sql::statement& what, const history_query& query,
                       std::int64_t before, std::int64_t count, sql::deadline until) {
    try {
        if (query.name.empty()) return sql::run(db, what, until, before, count);
        return sql::run(db, what, until, query.name, before, count);
    } catch (const error& failure) {
        if (failure.kind() != errc::schema_outdated) throw;
        throw error{errc::schema_outdated,
                    "no history is recorded here: `rowlock migrate --history on` begins it",
                    {failure.sqlstate(), failure.native_code(), failure.server_message()}};
    }
}

}  // namespace

const char* to_string(history_kind kind) noexcept {
    return names.at(static_cast<std::size_t>(kind));
}

const char* to_string(history_of what) noexcept {
    switch (what) {
        case history_of::semaphore:
            return "semaphore";
        case history_of::shared_mutex:
            return "shared_mutex";
        case history_of::lease:
            break;
    }
    return "lease";
}

std::optional<lock_mode> history_record::mode() const noexcept {
    if (of != history_of::shared_mutex || permits < 1) return std::nullopt;
    return protocol::mode_for(permits).value_or(lock_mode::exclusive);
}

std::ostream& operator<<(std::ostream& out, history_kind kind) {
    return out << to_string(kind);
}

std::vector<history_record> read_history(sql::connection& connection,
                                         const sql::table_names& tables, const history_query& query,
                                         sql::deadline until) {
    validate(query);
    const auto what = sql::load_statement(
        connection.speaks(), query.name.empty() ? "history" : "history_of", {.tables = tables});
    std::vector<history_record> found;
    std::int64_t before = query.before;
    for (std::int64_t left = query.limit; left > 0;) {
        const std::int64_t wanted = std::min(left, piece);
        const auto rows = read_piece(connection, what, query, before, wanted, until);
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            auto one = read_row(rows, row);
            if (query.since && one.age > *query.since) {
                left = 0;
                break;
            }
            before = one.id;
            found.push_back(std::move(one));
        }
        left -= wanted;
        if (static_cast<std::int64_t>(rows.rows()) < wanted) break;
    }
    std::ranges::reverse(found);
    return found;
}

std::vector<history_record> read_history(const sql::connection_source& source,
                                         const history_query& query) {
    const auto until = std::chrono::steady_clock::now() + whole_reading;
    const auto db = sql::connect_stated(source, until);
    return read_history(*db, source.tables(), query, until);
}

}  // namespace rowlock
