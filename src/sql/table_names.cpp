#include "sql/table_names.hpp"

#include "base/ascii.hpp"
#include "sql/lexer.hpp"
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

void validate_name(std::string_view name, const char* what) {
    const bool well_formed =
        !name.empty() && name.size() <= max_name_length && lower_or_underscore(name.front()) &&
        std::all_of(name.begin(), name.end(),
                    [](char c) { return lower_or_underscore(c) || ascii::is_digit(c); });
    if (well_formed) return;
    throw error{errc::invalid_options,
                std::string{"the "} + what +
                    " must be 1 to 31 lower-case letters, digits or underscores, and not start "
                    "with a digit"};
}

/// Whether the word is one of our tables, and not qualified. Between backticks it is a name on
/// every database but PostgreSQL, and there no code.
bool names_our_table(std::string_view sql, const token& word) {
    const char before = word.offset == 0 ? ' ' : sql[word.offset - 1];
    return word.kind == token_kind::word && word.text.starts_with(table_marker) &&
           word.text != testing_function && before != '.' && before != '`';
}

void append_qualified(std::string& made, std::string_view sql, sql::dialect which,
                      std::string_view replacement) {
    lexer tokens{which, sql};
    while (const auto each = tokens.next()) {
        if (names_our_table(sql, *each)) {
            made.append(replacement).append(each->text.substr(table_marker.size()));
        } else if (const auto mark = dollar_quote_of(*each); !mark.empty()) {
            // The closing mark is read as one that opens an empty body.
            made.append(mark);
            append_qualified(made, each->text.substr(mark.size()), which, replacement);
        } else {
            made.append(each->text);
        }
    }
}

/// Whether every word of the text that may name a table is code on every database: it has no quoted
/// name, no comment, no named parameter, and only simple literals. True for nearly all of our
/// statements, which a client reads when it is made: the lexer takes ten times as long.
bool is_plain(std::string_view sql) {
    for (std::size_t i = 0; i < sql.size(); ++i) {
        const char next = i + 1 < sql.size() ? sql[i + 1] : '\0';
        switch (sql[i]) {
            case '\'': {
                // A doubled quote ends one literal and begins another.
                const auto end = sql.find('\'', i + 1);
                if (end == std::string_view::npos) return false;
                const auto literal = sql.substr(i + 1, end - i - 1);
                if (literal.find('\\') != std::string_view::npos) return false;
                if (literal.find(table_marker) != std::string_view::npos) return false;
                i = end;
                break;
            }
            case '"':
            case '`':
            case '[':
            case '\\':
            case '#':
            case '@':
            case '?':
                return false;
            case '$':
                if (!ascii::is_digit(next)) return false;
                break;
            case ':':
                if (next != ':') return false;
                ++i;
                break;
            case '-':
                if (next == '-') return false;
                break;
            case '/':
                if (next == '*') return false;
                break;
            default:
                break;
        }
    }
    return true;
}

/// As append_qualified, for a plain text.
void append_plain(std::string& made, std::string_view sql, std::string_view replacement) {
    std::size_t done = 0;
    for (std::size_t at = 0; (at = sql.find(table_marker, at)) != std::string_view::npos;) {
        const char before = at == 0 ? ' ' : sql[at - 1];
        const auto from_here = sql.substr(at);
        const bool is_function = from_here.starts_with(testing_function) &&
                                 (from_here.size() == testing_function.size() ||
                                  !in_word(from_here[testing_function.size()]));
        if (!in_word(before) && before != '.' && !is_function) {
            made.append(sql.substr(done, at - done)).append(replacement);
            done = at + table_marker.size();
        }
        at += table_marker.size();
    }
    made.append(sql.substr(done));
}

}  // namespace

void validate_names(sql::dialect which, const table_names& names) {
    const auto& [schema, prefix] = names;
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

std::string qualify(std::string_view sql, sql::dialect which, const table_names& names) {
    validate_names(which, names);
    std::string quoted;
    // Quoted, since a schema may be called user or order.
    if (!names.schema.empty()) quoted.append(1, '"').append(names.schema).append(1, '"');
    return qualify_found(sql, which, quoted, names.prefix);
}

std::string qualify_found(std::string_view sql, sql::dialect which, std::string_view quoted,
                          std::string_view prefix) {
    std::string replacement{quoted};
    if (!quoted.empty()) replacement.append(1, '.');
    replacement.append(prefix);

    std::string made;
    made.reserve(sql.size() + sql.size() / 4);
    if (is_plain(sql)) {
        append_plain(made, sql, replacement);
    } else {
        append_qualified(made, sql, which, replacement);
    }
    return made;
}

}  // namespace rowlock::sql
