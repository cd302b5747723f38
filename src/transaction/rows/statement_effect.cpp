#include "transaction/rows/statement_effect.hpp"

#include "base/ascii.hpp"
#include "sql/lexer.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace rowlock::detail {
namespace {

using sql::token_kind;

/// MySQL's variables may be quoted: set `autocommit` = 1.
bool may_name_variable(sql::dialect speaks, const sql::token& one) {
    return speaks == sql::dialect::mysql && one.kind == token_kind::quoted_identifier;
}

bool is_code(const sql::token& one) {
    return one.kind != token_kind::whitespace && one.kind != token_kind::comment &&
           one.kind != token_kind::string && one.kind != token_kind::quoted_identifier;
}

/// Appends with each run of other characters than those of a word as one blank.
void append_words(std::string& text, std::string_view words) {
    for (const char c : words) {
        if (sql::in_word(c)) {
            text += c;
        } else if (!text.empty() && text.back() != ' ') {
            text += ' ';
        }
    }
}

/// Returns the code in lower case; comments, strings and quoted names become a blank, and so does
/// each run of blanks. Code that MySQL executes inside comments stays.
std::string bare(sql::dialect speaks, std::string_view text) {
    std::string made;
    made.reserve(text.size());
    sql::lexer tokens{speaks, text};
    while (const auto next = tokens.next()) {
        if (is_code(*next)) {
            made += next->text;
        } else {
            append_words(made, may_name_variable(speaks, *next) ? next->text : " ");
        }
    }
    std::ranges::transform(made, made.begin(), ascii::to_lower);
    return made;
}

/// Takes the next word off the front, skipping opening parentheses.
std::string_view take_word(std::string_view& rest) {
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '(')) rest.remove_prefix(1);
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
           text.find_first_not_of(" ;", first) != std::string_view::npos;
}

constexpr std::array<std::string_view, 6> ending{"begin", "start", "commit", "end", "abort", "xa"};
// Each commits implicitly on MySQL and MariaDB.
constexpr std::array<std::string_view, 24> committing{
    "alter",   "create",   "drop",  "rename", "truncate", "lock",      "unlock",  "grant",
    "revoke",  "flush",    "reset", "cache",  "repair",   "uninstall", "install", "check",
    "analyze", "optimize", "stop",  "backup", "change",   "import",    "clone",   "restart"};
// On MySQL and MariaDB these leave traces but commit nothing.
constexpr std::array<std::string_view, 7> harmless{"set",        "do",      "use", "prepare",
                                                   "deallocate", "handler", "help"};
constexpr std::array<std::string_view, 14> plain_words{
    "select", "with",  "insert",  "update", "delete", "replace",   "merge",
    "values", "table", "explain", "show",   "desc",   "savepoint", "release"};
// Text that leaves traces in an otherwise plain statement.
constexpr std::array<std::string_view, 6> traces{"set_config", "advisory",  "get_lock",
                                                 "@",          "into temp", "pg_temp"};

bool ends_as_set(std::string_view rest) {
    if (contains(rest, "autocommit")) return true;
    auto next = take_word(rest);
    if (next == "session" || next == "global" || next == "local") next = take_word(rest);
    return next == "transaction" || next == "password" || next == "default";
}

statement_effect effect_on_mysql(std::string_view word, std::string_view rest,
                                 std::string_view text) {
    if (contains(text, "/*")) return statement_effect::ends_transaction;
    if (word == "set" && ends_as_set(rest)) return statement_effect::ends_transaction;
    if (word == "load" && take_word(rest) == "index") return statement_effect::ends_transaction;
    if (is_one_of(word, committing)) {
        const bool temporary = (word == "create" || word == "drop") &&
                               take_word(rest) == "temporary" && take_word(rest) == "table";
        return temporary ? statement_effect::leaves_traces : statement_effect::ends_transaction;
    }
    return is_one_of(word, harmless) ? statement_effect::leaves_traces : statement_effect::may_end;
}

statement_effect effect_of_plain(sql::dialect speaks, std::string_view word, std::string_view rest,
                                 std::string_view text) {
    if (speaks == sql::dialect::mysql && contains(text, "/*!")) {
        return statement_effect::leaves_traces;
    }
    const bool makes =
        word == "explain" && contains(rest, "create");  // PostgreSQL's ANALYZE runs it
    const bool traced = std::ranges::any_of(traces, [&](auto t) { return contains(text, t); });
    return makes || traced ? statement_effect::leaves_traces : statement_effect::plain;
}

/// SET LOCAL ends with the transaction; but a change of where names are looked up changes their
/// meaning.
statement_effect effect_of_set_local(std::string_view rest) {
    const bool names = contains(rest, "search_path") || contains(rest, "schema") ||
                       contains(rest, "role") || contains(rest, "authorization");
    return names ? statement_effect::leaves_traces : statement_effect::plain;
}

statement_effect effect_of_bare(sql::dialect speaks, std::string_view text) {
    std::string_view rest = text;
    const auto word = take_word(rest);
    if (has_several(text)) return statement_effect::several;
    if (is_one_of(word, ending)) return statement_effect::ends_transaction;
    if (word == "rollback") {
        auto next = take_word(rest);
        if (next == "work" || next == "transaction") next = take_word(rest);
        return next == "to" ? statement_effect::plain : statement_effect::ends_transaction;
    }
    const auto after = rest;
    const auto next = take_word(rest);
    if (word == "prepare" && next == "transaction") return statement_effect::ends_transaction;
    if (word == "call" || word == "execute") return statement_effect::may_end;
    if (is_one_of(word, plain_words)) return effect_of_plain(speaks, word, after, text);
    if (speaks == sql::dialect::postgresql && word == "set" && next == "local") {
        return effect_of_set_local(rest);
    }
    if (speaks != sql::dialect::mysql) return statement_effect::leaves_traces;
    // MariaDB: SET STATEMENT variable = value FOR statement.
    const auto inner = rest.find(" for ");
    if (word == "set" && next == "statement" && inner != std::string_view::npos) {
        const auto effect = effect_of_bare(speaks, rest.substr(inner + 5));
        return effect == statement_effect::plain ? statement_effect::leaves_traces : effect;
    }
    return effect_on_mysql(word, after, text);
}

}  // namespace

statement_effect effect_of(sql::dialect speaks, std::string_view text) {
    return effect_of_bare(speaks, bare(speaks, text));
}

}  // namespace rowlock::detail
