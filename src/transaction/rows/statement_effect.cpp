#include "transaction/rows/statement_effect.hpp"

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

bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || static_cast<unsigned char>(c) > 127;
}

/// Reads SQL as the database does, separating code from strings, comments and quoted names. Not the
/// reader of sql/table_names.hpp, which serves our own files: here a text that is read differently
/// from the server would hide a commit.
class reader {
public:
    reader(sql::dialect speaks, std::string_view text) : speaks_{speaks}, text_{text} {}

    /// Returns the code in lower case, with runs of blanks collapsed; comments and strings become a
    /// blank. Code that MySQL executes inside comments stays.
    std::string bare() {
        while (at_ < text_.size()) {
            const auto begin = at_;
            skip();
            if (at_ == begin) {
                add(text_[at_++]);
            } else {
                add(' ');
                // MySQL's variables may be quoted: set `autocommit` = 1.
                const bool variable = mysql() && text_[begin] == '`';
                for (auto i = begin; variable && i < at_; ++i)
                    add(in_name(text_[i]) ? text_[i] : ' ');
            }
        }
        return lower(made_);
    }

private:
    [[nodiscard]] bool mysql() const { return speaks_ == sql::dialect::mysql; }
    [[nodiscard]] bool postgresql() const { return speaks_ == sql::dialect::postgresql; }
    [[nodiscard]] std::string_view rest() const { return text_.substr(at_); }

    void add(char c) {
        if (!is_blank(c)) {
            made_ += c;
        } else if (!made_.empty() && made_.back() != ' ') {
            made_ += ' ';
        }
    }

    /// Skips a comment, string or quoted name that begins here.
    void skip() {
        if (begins_line_comment()) return skip_past("\n", 1);
        if (rest().starts_with("/*")) {
            const bool code = mysql() && (rest().starts_with("/*!") || rest().starts_with("/*M!"));
            if (code) return;
            return postgresql() ? skip_nested() : skip_past("*/", 2);
        }
        switch (text_[at_]) {
            case '\'':
                return skip_quoted(mysql() || (postgresql() && behind_an_e()));
            case '"':
                return skip_quoted(mysql());
            case '`':
                if (!postgresql()) skip_quoted(false);
                return;
            case '[':
                if (speaks_ == sql::dialect::sqlite) skip_past("]", 1);
                return;
            case '$':
                if (postgresql()) skip_between_dollars();
                return;
            default:
                return;
        }
    }

    /// On MySQL `--1` is a number.
    [[nodiscard]] bool begins_line_comment() const {
        if (mysql() && rest().starts_with("#")) return true;
        if (!rest().starts_with("--")) return false;
        return !mysql() || rest().size() == 2 || static_cast<unsigned char>(rest()[2]) <= ' ';
    }

    /// PostgreSQL: E'…' has backslash escapes.
    [[nodiscard]] bool behind_an_e() const {
        if (at_ == 0 || (text_[at_ - 1] != 'e' && text_[at_ - 1] != 'E')) return false;
        return at_ == 1 || !in_name(text_[at_ - 2]);
    }

    void skip_past(std::string_view end, std::size_t from) {
        const auto found = text_.find(end, at_ + from);
        at_ = found == std::string_view::npos ? text_.size() : found + end.size();
    }

    void skip_nested() {
        int depth = 0;
        do {
            const bool opens = rest().starts_with("/*");
            const bool closes = rest().starts_with("*/");
            depth += opens ? 1 : closes ? -1 : 0;
            at_ += opens || closes ? 2 : 1;
        } while (depth > 0 && at_ < text_.size());
    }

    void skip_quoted(bool backslashes) {
        const char quote = text_[at_++];
        while (at_ < text_.size()) {
            const bool escapes = backslashes && text_[at_] == '\\';
            const bool doubled = text_[at_] == quote && rest().substr(1).starts_with(quote);
            if (text_[at_] == quote && !doubled) break;
            at_ += escapes || doubled ? 2U : 1U;
        }
        at_ = std::min(at_ + 1, text_.size());
    }

    /// Skips $$ … $$ and $word$ … $word$; $1 is no quote.
    void skip_between_dollars() {
        if (at_ > 0 && in_name(text_[at_ - 1])) return;
        auto end = at_ + 1;
        while (end < text_.size() && in_name(text_[end]) && text_[end] != '$') ++end;
        const bool number = end > at_ + 1 && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9';
        if (number || end >= text_.size() || text_[end] != '$') return;
        const auto mark = text_.substr(at_, end + 1 - at_);
        skip_past(mark, mark.size());
    }

    sql::dialect speaks_;
    std::string_view text_;
    std::size_t at_ = 0;
    std::string made_;
};

/// Takes the next word off the front, skipping opening parentheses.
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
    return effect_of_bare(speaks, reader{speaks, text}.bare());
}

}  // namespace rowlock::detail
