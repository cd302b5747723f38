#include "sql/identifier.hpp"

#include "base/ascii.hpp"
#include "base/utf8.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::sql {
namespace {

constexpr std::size_t longest_on_postgresql = 63;
constexpr std::size_t longest_elsewhere = 64;

std::size_t characters_in(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

void require_usable(sql::dialect which, std::string_view name) {
    if (name.empty()) {
        throw error{errc::invalid_options, "the name of a table or column is missing"};
    }
    if (utf8::check(name) != utf8::verdict::clean) {
        throw error{errc::invalid_options,
                    "the name of a table or column is no UTF-8 or holds a control character"};
    }
    const bool too_long = which == sql::dialect::postgresql
                              ? name.size() > longest_on_postgresql
                              : characters_in(name) > longest_elsewhere;
    if (too_long) {
        throw error{errc::invalid_options,
                    "the name of a table or column is longer than the database keeps"};
    }
}

}  // namespace

std::string quoted(sql::dialect which, std::string_view name) {
    require_usable(which, name);
    // SQLite reads "name" as a string where there is no such column; `name` is never one.
    const char quote = which == sql::dialect::postgresql ? '"' : '`';
    std::string text{quote};
    for (const char c : name) {
        text += c;
        if (c == quote) text += c;
    }
    return text += quote;
}

std::string quoted_table(sql::dialect which, std::string_view name) {
    const auto dot = name.find('.');
    if (dot == std::string_view::npos) return quoted(which, name);
    if (name.find('.', dot + 1) != std::string_view::npos) {
        throw error{errc::invalid_options, "a table is named 'table' or 'schema.table'"};
    }
    return quoted(which, name.substr(0, dot)) + "." + quoted(which, name.substr(dot + 1));
}

bool same_name(sql::dialect which, std::string_view one, std::string_view other) {
    return which == sql::dialect::postgresql ? one == other
                                             : ascii::equal_ignoring_case(one, other);
}

bool folds_beyond_ascii(sql::dialect which) {
    return which == sql::dialect::mysql;
}

bool operators_have_schemas(sql::dialect which) {
    return which == sql::dialect::postgresql;
}

std::string binary_operator(sql::dialect dialect, std::string_view name, std::string_view schema) {
    std::string text{" "};
    if (!operators_have_schemas(dialect)) return text.append(name).append(" ");
    return text.append("operator(").append(schema).append(".").append(name).append(") ");
}

}  // namespace rowlock::sql
