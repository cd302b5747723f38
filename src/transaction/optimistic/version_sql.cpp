#include "transaction/optimistic/version_sql.hpp"

#include "sql/database_traits.hpp"
#include "sql/identifier.hpp"

namespace rowlock::optimistic {
namespace {

constexpr std::string_view sqlite_now_us =
    "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000";
constexpr std::string_view mysql_now_us =
    "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";

std::string placeholder(std::size_t number) {
    return "$" + std::to_string(number);
}

/// SQLite: the layout of the text in the row, so that texts of one column sort by time.
std::string text_layout(const std::string& column) {
    return "case substr(" + column +
           ", 11, 1) when 'T' then '%Y-%m-%dT%H:%M:%fZ' else '%Y-%m-%d %H:%M:%f' end";
}

/// The version as it is read, compared and returned: exact, and the same for equal values only.
std::string seen_expression(const table_shape& of) {
    if (!of.version_is_time) return of.version;
    switch (of.speaks) {
        case sql::dialect::postgresql:
            // Infinity has no successor, so it is not a version.
            return "case when pg_catalog.isfinite(" + of.version + ") then (extract(epoch from " +
                   of.version + ") operator(pg_catalog.*) 1000000)::bigint end";
        case sql::dialect::mysql:
            return "timestampdiff(microsecond, '1970-01-01', " + of.version + ")";
        case sql::dialect::sqlite:
            return "cast(" + of.version + " as text)";
    }
    return {};
}

/// The next version: greater than the row's last one, whatever the clock says. It is evaluated on
/// the locked row. A clock read before a wait may be stale. That is harmless: a version committed
/// meanwhile fails the predicate.
std::string next_expression(const table_shape& of, std::size_t new_version) {
    const std::string& column = of.version;
    if (!of.version_is_time) return column + sql::binary_operator(of.speaks, "+") + "1";
    switch (of.speaks) {
        case sql::dialect::postgresql:
            return std::string{"greatest(pg_catalog.clock_timestamp()"} +
                   (of.version_stored == storage::plain_time ? " at time zone 'UTC'" : "") + ", " +
                   column + " operator(pg_catalog.+) interval '1 microsecond')";
        case sql::dialect::mysql:
            return "timestamp('1970-01-01') + interval " + placeholder(new_version) +
                   " microsecond";
        case sql::dialect::sqlite:
            // NULL, which the predicate refuses, for a value that is no time or lies past the year
            // 9999.
            return "case typeof(" + column + ") when 'integer' then max(" +
                   std::string{sqlite_now_us} + ", " + column +
                   " + 1) when 'text' then max(strftime(" + text_layout(column) +
                   ", 'now'), strftime(" + text_layout(column) + ", " + column +
                   ", '+0.001 seconds')) end";
    }
    return {};
}

/// The current time, as a column of this kind stores it.
std::string now_for(sql::dialect speaks, storage stored) {
    switch (speaks) {
        case sql::dialect::postgresql:
            if (stored == storage::integer) {
                return "(extract(epoch from pg_catalog.clock_timestamp()) operator(pg_catalog.*) "
                       "1000000)::bigint";
            }
            return stored == storage::plain_time ? "pg_catalog.clock_timestamp() at time zone 'UTC'"
                                                 : "pg_catalog.clock_timestamp()";
        case sql::dialect::mysql:
            if (stored == storage::integer) return std::string{mysql_now_us};
            return stored == storage::local_time ? "now(6)" : "utc_timestamp(6)";
        case sql::dialect::sqlite:
            return stored == storage::integer ? std::string{sqlite_now_us}
                                              : "strftime('%Y-%m-%d %H:%M:%f', 'now')";
    }
    return {};
}

std::string first_version(const table_shape& of, std::size_t new_version) {
    if (!of.version_is_time) return "1";
    if (!needs_new_version(of)) return now_for(of.speaks, of.version_stored);
    return next_expression(of, new_version);
}

std::string where_key(const table_shape& of) {
    std::string text = " where ";
    for (std::size_t index = 0; index < of.key.size(); ++index) {
        if (index != 0) text += " and ";
        const bool known = index < of.equality.size();
        text += of.key[index] +
                sql::binary_operator(of.speaks, "=",
                                     known ? of.equality[index] : std::string{"pg_catalog"}) +
                placeholder(index + 1);
    }
    return text;
}

std::string where_seen(const table_shape& of) {
    return where_key(of) + " and " + seen_expression(of) + sql::binary_operator(of.speaks, "=") +
           placeholder(of.key.size() + 1);
}

std::string returning(const table_shape& of) {
    return answers_version(of) ? " returning " + seen_expression(of) : std::string{};
}

void append_name(std::string& list, const std::string& name) {
    if (!list.empty()) list += ", ";
    list += name;
}

std::string joined(std::span<const std::string> names) {
    std::string list;
    for (const std::string& name : names) append_name(list, name);
    return list;
}

}  // namespace

bool needs_new_version(const table_shape& of) noexcept {
    return of.version_is_time && !answers_version(of);
}

bool answers_version(const table_shape& of) noexcept {
    return sql::traits_of(of.speaks).returns_rows;
}

bool has_untyped_time(const table_shape& of) noexcept {
    return of.version_is_time && of.speaks == sql::dialect::sqlite;
}

std::string read_text(const table_shape& of, std::span<const std::string> columns) {
    std::string text = "select " + seen_expression(of) + ", ";
    text +=
        of.deleted_at.empty() ? "0" : "case when " + of.deleted_at + " is null then 0 else 1 end";
    text += ", ";
    text += has_untyped_time(of) ? "(" + next_expression(of, 0) + ") is not null" : "1";
    for (const std::string& column : columns) text += ", " + column;
    return text + " from " + of.table + where_key(of) + " limit 2";
}

std::string read_newest_text(const table_shape& of) {
    return read_text(of, {}) + " lock in share mode";
}

std::string insert_text(const table_shape& of, std::span<const assignment> values) {
    std::string columns = joined(of.key);
    std::string cells;
    std::size_t parameter = 0;
    while (parameter < of.key.size()) append_name(cells, placeholder(++parameter));
    append_name(columns, of.version);
    const std::size_t new_version = parameter + 1;
    if (needs_new_version(of)) ++parameter;
    append_name(cells, first_version(of, new_version));
    for (const assignment& each : values) {
        append_name(columns, sql::quoted(of.speaks, each.column));
        append_name(cells, placeholder(++parameter));
    }
    std::string text = "insert into " + of.table + " (" + columns + ") values (" + cells + ")";
    if (answers_version(of)) text += " on conflict (" + joined(of.key) + ") do nothing";
    return text + returning(of);
}

std::string update_text(const table_shape& of, std::span<const assignment> values, mark how) {
    std::size_t parameter = of.key.size() + 1;
    const std::size_t new_version = parameter + 1;
    if (needs_new_version(of)) ++parameter;
    std::string text =
        "update " + of.table + " set " + of.version + " = " + next_expression(of, new_version);
    const std::string plus = sql::binary_operator(of.speaks, "+");
    for (const assignment& each : values) {
        const std::string column = sql::quoted(of.speaks, each.column);
        text += ", " + column + " = " + (each.adds ? column + plus : std::string{}) +
                placeholder(++parameter);
    }
    if (how == mark::set) {
        text += ", " + of.deleted_at + " = " + now_for(of.speaks, of.deleted_stored);
    }
    if (how == mark::clear) text += ", " + of.deleted_at + " = null";
    text += where_seen(of);
    if (!of.deleted_at.empty()) {
        text += " and " + of.deleted_at + (how == mark::clear ? " is not null" : " is null");
    }
    if (has_untyped_time(of)) text += " and (" + next_expression(of, 0) + ") is not null";
    return text + returning(of);
}

std::string erase_text(const table_shape& of) {
    return "delete from " + of.table + where_seen(of);
}

}  // namespace rowlock::optimistic
