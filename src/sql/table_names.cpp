#include "sql/table_names.hpp"

#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::sql {
namespace {

constexpr std::string_view table_marker = "rowlock_";
constexpr std::string_view testing_function = "rowlock_testing_now";
constexpr std::size_t max_name_length = 31;

bool lower_or_underscore(char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
}

bool digit(char c) {
    return c >= '0' && c <= '9';
}

/// Bytes above 127 belong to identifiers on every database.
bool identifier_character(char c) {
    return lower_or_underscore(c) || digit(c) || (c >= 'A' && c <= 'Z') || c == '$' ||
           static_cast<unsigned char>(c) > 127;
}

void validate_name(std::string_view name, const char* what) {
    const bool well_formed = !name.empty() && name.size() <= max_name_length &&
                             lower_or_underscore(name.front()) &&
                             std::all_of(name.begin(), name.end(),
                                         [](char c) { return lower_or_underscore(c) || digit(c); });
    if (well_formed) return;
    throw error{errc::invalid_options,
                std::string{"the "} + what +
                    " must be 1 to 31 lower-case letters, digits or underscores, and not start "
                    "with a digit"};
}

std::size_t identifier_end(std::string_view sql, std::size_t begin) {
    while (begin < sql.size() && identifier_character(sql[begin])) ++begin;
    return begin;
}

std::size_t skip_quoted(std::string_view sql, std::size_t begin, bool backslash_escapes) {
    const char quote = sql[begin];
    for (std::size_t at = begin + 1; at < sql.size(); ++at) {
        if (backslash_escapes && sql[at] == '\\') {
            ++at;
        } else if (sql[at] == quote) {
            if (at + 1 == sql.size() || sql[at + 1] != quote) return at + 1;
            ++at;  // a doubled quote stands for itself
        }
    }
    return sql.size();
}

std::size_t end_after(std::string_view sql, std::size_t from, std::string_view terminator) {
    const std::size_t found = sql.find(terminator, from);
    return found == std::string_view::npos ? sql.size() : found + terminator.size();
}

}  // namespace

void validate_names(sql::dialect which, std::string_view schema, std::string_view prefix) {
    validate_name(prefix, "table prefix");
    if (which == sql::dialect::sqlite && prefix.starts_with("sqlite_")) {
        throw error{errc::invalid_options,
                    "SQLite keeps names that start with sqlite_ for itself: choose another prefix"};
    }
    if (schema.empty()) return;
    if (which != sql::dialect::postgresql) {
        throw error{errc::invalid_options,
                    "only PostgreSQL has schemas: choose a table prefix, or name another database "
                    "in the URL"};
    }
    validate_name(schema, "schema");
    if (schema.starts_with("pg_")) {
        throw error{errc::invalid_options,
                    "PostgreSQL keeps schemas that start with pg_ for itself: choose another name"};
    }
}

std::string qualify(std::string_view sql, sql::dialect which, std::string_view schema,
                    std::string_view prefix) {
    validate_names(which, schema, prefix);
    std::string quoted;
    // Quoted, since a schema may be called user or order.
    if (!schema.empty()) quoted.append(1, '"').append(schema).append(1, '"');
    return qualify_found(sql, which, quoted, prefix);
}

std::string qualify_found(std::string_view sql, sql::dialect which, std::string_view quoted,
                          std::string_view prefix) {
    std::string replacement{quoted};
    if (!quoted.empty()) replacement.append(1, '.');
    replacement.append(prefix);

    std::string made;
    made.reserve(sql.size() + sql.size() / 4);
    for (std::size_t at = 0; at < sql.size();) {
        if (const std::size_t end = skip_opaque(sql, at, which); end != at) {
            made.append(sql.substr(at, end - at));
            at = end;
            continue;
        }
        const std::size_t end = identifier_end(sql, at);
        if (end == at) {
            made.push_back(sql[at++]);
            continue;
        }
        std::string_view word = sql.substr(at, end - at);
        const bool behind_a_dot = at > 0 && sql[at - 1] == '.';
        if (word.starts_with(table_marker) && word != testing_function && !behind_a_dot) {
            made.append(replacement);
            word.remove_prefix(table_marker.size());
        }
        made.append(word);
        at = end;
    }
    return made;
}

std::size_t skip_opaque(std::string_view sql, std::size_t begin, sql::dialect which) {
    const std::string_view rest = sql.substr(begin);
    if (rest.empty()) return begin;
    const bool mysql = which == sql::dialect::mysql;
    if (rest.starts_with("--") || (mysql && rest.starts_with("#"))) {
        return end_after(sql, begin, "\n");
    }
    if (rest.starts_with("/*")) return end_after(sql, begin + 2, "*/");
    switch (rest.front()) {
        case '\'':
            return skip_quoted(sql, begin, mysql);
        case '"':
            return skip_quoted(sql, begin, mysql);
        case '`':
            return skip_quoted(sql, begin, false);
        default:
            return begin;
    }
}

}  // namespace rowlock::sql
