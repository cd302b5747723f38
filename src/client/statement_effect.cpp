#include "client/statement_effect.hpp"

#include "schema/table_names.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace rowlock::detail {
namespace {

constexpr std::string_view blanks = " \t\r\n\f\v";

bool is_blank(char c) {
    return blanks.find(c) != std::string_view::npos;
}

std::string lower(std::string_view text) {
    std::string made{text};
    std::ranges::transform(made, made.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return made;
}

/// Comments become blanks, strings and quoted names disappear. Code that MySQL reads in comments
/// stays.
std::string bare(sql::dialect speaks, std::string_view text) {
    std::string made;
    for (std::size_t at = 0; at < text.size();) {
        const bool hidden_code =
            speaks == sql::dialect::mysql &&
            (text.substr(at).starts_with("/*!") || text.substr(at).starts_with("/*M!"));
        const auto end = hidden_code ? at : schema::skip_opaque(text, at, speaks);
        if (end == at) {
            made += text[at++];
        } else {
            made += ' ';
            at = end;
        }
    }
    return lower(made);
}

/// Takes the next word off the front; opening parentheses do not count.
std::string_view take_word(std::string_view& rest) {
    while (!rest.empty() && (is_blank(rest.front()) || rest.front() == '(')) rest.remove_prefix(1);
    const auto end = std::ranges::find_if(
        rest, [](char c) { return !(c >= 'a' && c <= 'z') && c != '_' && c != '/'; });
    const auto word = rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
    rest.remove_prefix(word.size());
    return word;
}

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
    return std::ranges::find(words, word) != words.end();
}

bool contains(std::string_view text, std::string_view what) {
    return text.find(what) != std::string_view::npos;
}

bool has_several(std::string_view text) {
    const auto first = text.find(';');
    return first != std::string_view::npos &&
           text.find_first_not_of(" \t\r\n\f\v;", first) != std::string_view::npos;
}

constexpr std::array<std::string_view, 6> ending{"begin", "start", "commit", "end", "abort", "xa"};
// Each commits by itself on MySQL and MariaDB.
constexpr std::array<std::string_view, 18> committing{
    "alter", "create", "drop",  "rename", "truncate",  "lock",    "unlock", "grant",   "revoke",
    "flush", "reset",  "cache", "repair", "uninstall", "install", "check",  "analyze", "optimize"};
constexpr std::array<std::string_view, 14> plain_words{
    "select", "with",  "insert",  "update", "delete", "replace",   "merge",
    "values", "table", "explain", "show",   "desc",   "savepoint", "release"};
// In a statement that is plain otherwise.
constexpr std::array<std::string_view, 5> traces{"set_config", "advisory", "get_lock", "@",
                                                 "into temp"};

statement_effect effect_on_mysql(std::string_view word, std::string_view rest,
                                 std::string_view text) {
    if (text.find("/*") != std::string_view::npos) return statement_effect::ends_transaction;
    if (word == "set" && (contains(rest, "autocommit") || contains(rest, "transaction"))) {
        return statement_effect::ends_transaction;
    }
    if (is_one_of(word, committing)) {
        const bool temporary = (word == "create" || word == "drop") &&
                               take_word(rest) == std::string_view{"temporary"};
        return temporary ? statement_effect::leaves_traces : statement_effect::ends_transaction;
    }
    return statement_effect::leaves_traces;
}

}  // namespace

statement_effect effect_of(sql::dialect speaks, std::string_view given) {
    const std::string text = bare(speaks, given);
    std::string_view rest = text;
    const auto word = take_word(rest);
    // What stands between dollar signs may well hold a semicolon.
    const bool body = speaks == sql::dialect::postgresql && contains(text, "$$");
    if (!body && has_several(text)) return statement_effect::several;
    if (is_one_of(word, ending)) return statement_effect::ends_transaction;
    if (word == "rollback") {
        const auto next = take_word(rest);
        const bool to = next == "to" || (next == "work" && take_word(rest) == "to") ||
                        (next == "transaction" && take_word(rest) == "to");
        return to ? statement_effect::plain : statement_effect::ends_transaction;
    }
    if (word == "prepare" && take_word(rest) == "transaction") {
        return statement_effect::ends_transaction;
    }
    if (word == "call" || word == "execute") return statement_effect::may_end;
    if (is_one_of(word, plain_words)) {
        if (speaks == sql::dialect::mysql && contains(text, "/*!")) {
            return statement_effect::leaves_traces;
        }
        const bool traced = std::ranges::any_of(traces, [&](auto t) { return contains(text, t); });
        return traced ? statement_effect::leaves_traces : statement_effect::plain;
    }
    if (speaks == sql::dialect::postgresql && word == "set" && take_word(rest) == "local") {
        return statement_effect::plain;
    }
    return speaks == sql::dialect::mysql ? effect_on_mysql(word, rest, text)
                                         : statement_effect::leaves_traces;
}

}  // namespace rowlock::detail
