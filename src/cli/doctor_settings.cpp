#include "cli/doctor.hpp"
#include "sql/table_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock::cli {
namespace {

using std::chrono::milliseconds;

/// A setting that our statements rely on, and the value with which they work.
using expected = std::pair<std::string_view, std::string_view>;

// The fragment `stated` of each dialect has the whole list; these change what a statement means.
constexpr std::array on_postgresql{expected{"client_encoding", "UTF8"},
                                   expected{"client_min_messages", "notice warning"},
                                   expected{"default_transaction_isolation", "read committed"},
                                   expected{"default_transaction_read_only", "off"},
                                   expected{"default_transaction_deferrable", "off"},
                                   expected{"standard_conforming_strings", "on"},
                                   expected{"array_nulls", "on"},
                                   expected{"transform_null_equals", "off"},
                                   expected{"row_security", "on"},
                                   expected{"session_replication_role", "origin local"}};
constexpr std::array on_mysql{expected{"character_set_client", "utf8mb4"},
                              expected{"character_set_connection", "utf8mb4"},
                              expected{"character_set_results", "utf8mb4"},
                              expected{"autocommit", "ON"},
                              expected{"completion_type", "NO_CHAIN"},
                              expected{"sql_safe_updates", "OFF"},
                              expected{"sql_select_limit", "18446744073709551615"},
                              expected{"max_join_size", "18446744073709551615"},
                              expected{"sql_auto_is_null", "OFF"},
                              expected{"tx_read_only", "OFF"},
                              expected{"transaction_read_only", "OFF"},
                              expected{"unique_checks", "ON"},
                              expected{"foreign_key_checks", "ON"}};

std::string names_of(std::span<const expected> all) {
    std::string list;
    for (const auto& [name, value] : all) {
        list.append(list.empty() ? "'" : ", '").append(name).append("'");
    }
    return list;
}

/// Those of `rows` (name, value) with another value than expected, as a list for people.
std::string differing(const sql::result& rows, std::span<const expected> all) {
    std::string list;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto name = rows.text(row, 0);
        const auto value = rows.text(row, 1);
        const auto found = std::ranges::find(all, name, &expected::first);
        if (found == all.end() || found->second.find(value) != std::string_view::npos) continue;
        list += fmt::format("{}{} = {}", list.empty() ? "" : ", ", name, value);
    }
    return list;
}

/// The defaults of this user in this database: what a session has before it sets anything.
sql::result defaults(examination& patient, const std::string& names) {
    if (patient.connection().speaks() == sql::dialect::postgresql) {
        return patient.query(
            "select name, reset_val from pg_catalog.pg_settings where name "
            "operator(pg_catalog.=) any (array[" +
            names + "])");
    }
    // Including what init_connect sets. SHOW would be cut by sql_select_limit.
    return patient.another_connection()->query(
        "/*M! set statement max_join_size = 18446744073709551615 for */ "
        "select /*+ SET_VAR(max_join_size = 18446744073709551615) */ lower(variable_name), "
        "variable_value from /*M! information_schema. */ /*!80000 performance_schema. */ "
        "session_variables where variable_name in (" +
            names + ") limit 100",
        examination::soon());
}

/// Reports a log of statements: at READ COMMITTED the server then refuses every write, and a
/// session may not change that.
bool refuses_writes(examination& patient) {
    const auto rows = defaults(patient, "'log_bin', 'binlog_format'");
    constexpr std::array wrong{expected{"log_bin", "OFF"}, expected{"binlog_format", "ROW MIXED"}};
    if (differing(rows, wrong).find("STATEMENT") == std::string::npos) return false;
    if (differing(rows, wrong).find("log_bin") == std::string::npos) return false;
    patient.fail("settings", "log_bin = ON, binlog_format = STATEMENT",
                 "set binlog_format = ROW or MIXED: the server refuses all of rowlock's writes");
    return true;
}

void check_settings(examination& patient) {
    const bool postgresql = patient.connection().speaks() == sql::dialect::postgresql;
    const std::span<const expected> all =
        postgresql ? std::span<const expected>{on_postgresql} : std::span<const expected>{on_mysql};
    if (!postgresql && refuses_writes(patient)) return;
    const std::string others = differing(defaults(patient, names_of(all)), all);
    if (others.empty()) return patient.ok("settings", "as rowlock's statements need them");
    if (others.find("session_replication_role") != std::string::npos) {
        return patient.warn("settings", others,
                            "with another session_replication_role the triggers of the history do "
                            "not run, and only a superuser may change it: reset it for this user");
    }
    if (!patient.connection().keeps_session_state()) {
        return patient.warn("settings", others,
                            "behind a transaction pooler rowlock cannot state its own: reset "
                            "these for this user and this database");
    }
    patient.ok("settings", others +
                               " by default; rowlock's own connections state theirs. A statement "
                               "on a handle of yours works, or fails and names the setting");
}

/// The limits on an idle connection that a session begins with, in milliseconds; 0: none.
std::pair<std::string, milliseconds> idle_limit(examination& patient) {
    const bool postgresql = patient.connection().speaks() == sql::dialect::postgresql;
    const std::string name = postgresql ? "idle_session_timeout" : "wait_timeout";
    const auto row = defaults(patient, "'" + name + "'");
    const auto text = row.empty() ? std::string_view{"0"} : row.text(0, 1);
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return {name, milliseconds{postgresql ? number : 1000 * number}};
}

/// The longest time between two heartbeats of a live session, or of one with the default ttl.
milliseconds server_pause(examination& patient) {
    const auto speaks = patient.connection().speaks();
    const auto table = sql::qualify("rowlock_session", speaks, patient.where().source.tables());
    const auto row = patient.query(
        speaks == sql::dialect::postgresql
            ? "select coalesce(pg_catalog.max(ttl_us), 0) from " + table + " where not ended"
            : "select coalesce(max(ttl_us), 0) from " + table + " where ended = 0");
    const std::chrono::microseconds ttl{row.integer(0, 0)};
    constexpr milliseconds usual = std::chrono::seconds{30};
    return std::max(usual, std::chrono::duration_cast<milliseconds>(ttl)) / 3;
}

void check_idle_limit(examination& patient) {
    const auto [name, limit] = idle_limit(patient);
    const auto pause = server_pause(patient);
    if (limit.count() == 0 || limit > pause) {
        return patient.ok("idle limit", limit.count() == 0
                                            ? "none"
                                            : fmt::format("{} = {} s, longer than a heartbeat",
                                                          name, limit.count() / 1000));
    }
    const std::string seen =
        fmt::format("{} = {} ms by default, and a session sends a heartbeat every {} ms", name,
                    limit.count(), pause.count());
    if (!patient.connection().keeps_session_state()) {
        return patient.warn("idle limit", seen,
                            "behind a transaction pooler rowlock cannot lift it: raise it for this "
                            "user, or the pooler loses its connections between two heartbeats");
    }
    patient.ok("idle limit", seen + "; rowlock's own connections state a longer one");
}

}  // namespace

void examine_settings(examination& patient, bool has_tables) {
    if (patient.connection().speaks() == sql::dialect::sqlite) return;
    patient.try_out("settings", [&] { check_settings(patient); });
    if (has_tables) patient.try_out("idle limit", [&] { check_idle_limit(patient); });
}

}  // namespace rowlock::cli
