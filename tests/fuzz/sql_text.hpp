#pragma once

#include "fuzz/target.hpp"
#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>
#include <vector>

/// SQL that is composed of pieces, so that the kind of each piece is known.
namespace fuzz {

using rowlock::sql::dialect;

struct piece {
    enum class kind : std::uint8_t {
        code,         ///< words, numbers, operators
        placeholder,  ///< $n
        semicolon,
        literal,  ///< '…', E'…', $$…$$; "…" on MySQL
        name,     ///< a quoted identifier
        comment,
    };
    kind is;
    std::string text;
    std::size_t number = 0;  ///< a placeholder's number
};

inline dialect any_dialect(input& from) {
    constexpr dialect all[] = {dialect::postgresql, dialect::mysql, dialect::sqlite};
    return all[from.below(3)];
}

/// Some characters with a meaning outside quotes and comments.
inline std::string awkward_text(input& from) {
    static constexpr std::string_view parts[] = {
        "$1",  "$2",   "?", ":p1", "'",        "\"", "`", "[",       "]",          "--",
        "-- ", "#",    "/", "*",   "$$",       "$a", "$", ";",       "\n",         "\\",
        "\\'", "\\\\", "a", "E'x", "\xc3\xa9", " ",  "!", "commit;", "autocommit", "rowlock_lock",
        ";\n"};
    std::string text;
    for (std::size_t count = from.below(8); count > 0; --count) {
        text += parts[from.below(std::size(parts))];
    }
    return text;
}

inline std::string in_quotes(const std::string& content, char quote, bool backslashes) {
    std::string text{quote};
    for (const char c : content) {
        if (c == quote || (c == '\\' && backslashes)) text += c;
        text += c;
    }
    return text += quote;
}

/// `content` without the text that would end it too soon.
inline std::string without(std::string content, std::string_view unwanted) {
    for (std::size_t at = content.find(unwanted); at != std::string::npos;
         at = content.find(unwanted)) {
        content.erase(at, unwanted.size());
    }
    return content;
}

inline piece any_comment(input& from, dialect which) {
    std::string content = awkward_text(from);
    if (from.byte() % 2 == 0) {
        const bool hash = which == dialect::mysql && from.byte() % 2 == 0;
        return {piece::kind::comment, (hash ? "#" : "-- ") + without(content, "\n") + "\n"};
    }
    // A leading blank, so that it is neither a hint nor code for MySQL. A / or * next to the marks
    // would make other marks.
    content = without(without(content, "/"), "*");
    if (which == dialect::postgresql && from.byte() % 2 == 0) {
        content += "/* " + content + " */";
    }
    return {piece::kind::comment, "/* " + content + " */"};
}

inline piece any_quoted(input& from, dialect which) {
    const std::string content = awkward_text(from);
    const bool mysql = which == dialect::mysql;
    switch (from.below(4)) {
        case 0:
            return {mysql ? piece::kind::literal : piece::kind::name,
                    in_quotes(content, '"', mysql)};
        case 1:
            if (which == dialect::postgresql) {
                return {piece::kind::literal, "E" + in_quotes(content, '\'', true)};
            }
            return {piece::kind::name, in_quotes(content, '`', false)};
        case 2:
            if (which == dialect::postgresql) {
                const std::string mark = from.byte() % 2 == 0 ? "$$" : "$a_1$";
                const std::string inner = without(content, "$");
                return {piece::kind::literal, mark + inner + mark};
            }
            if (which == dialect::sqlite) {
                return {piece::kind::name, "[" + without(content, "]") + "]"};
            }
            [[fallthrough]];
        default:
            // On PostgreSQL a newline may make it part of an E'' before it, where backslashes
            // escape.
            if (which == dialect::postgresql) {
                return {piece::kind::literal, in_quotes(without(content, "\\"), '\'', false)};
            }
            return {piece::kind::literal, in_quotes(content, '\'', mysql)};
    }
}

inline piece any_piece(input& from, dialect which) {
    static constexpr std::string_view code[] = {
        "select", "a", "1",  "1.5", "+",  "-",  "(", ")", ",",   "a$1",       "_e$2x",
        "x.y",    "=", "<>", "\n",  "\t", "a1", "e", "E", "for", "\xc3\xa9$1"};
    switch (from.below(6)) {
        case 0:
            return any_comment(from, which);
        case 1:
        case 2:
            return any_quoted(from, which);
        case 3: {
            const std::size_t number = 1 + from.below(12);
            return {piece::kind::placeholder, "$" + std::to_string(number), number};
        }
        default:
            return {piece::kind::code, std::string{code[from.below(std::size(code))]}};
    }
}

/// Pieces without semicolons.
inline std::vector<piece> any_pieces(input& from, dialect which) {
    std::vector<piece> all;
    while (!from.empty() && all.size() < 64) all.push_back(any_piece(from, which));
    return all;
}

/// Half of the inputs build a text of known pieces, the others are the text themselves.
template <typename Known, typename Any>
int known_or_any(const std::uint8_t* data, std::size_t size, Known known_text, Any any_text) {
    input from{data, size};
    const bool known = from.byte() % 2 == 1;
    const dialect which = any_dialect(from);
    if (known) {
        known_text(from, which);
    } else {
        any_text(from.all(), which);
    }
    return 0;
}

}  // namespace fuzz
