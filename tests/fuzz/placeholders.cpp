// Only placeholders are rewritten: not the contents of literals, quoted names and comments, and not
// text that was rewritten already. Text that is composed of known pieces must give the known
// result; any other text must satisfy the rules for all.
//
// First byte: which of the two. Second opinions: SQLite counts the parameters of statements that it
// can prepare, and a small reader finds those that SOCI would find.

#include "driver/placeholders.hpp"

#include "fuzz/sql_text.hpp"
#include "fuzz/target.hpp"
#include <rowlock/error.hpp>

#include <sqlite3.h>

#include <algorithm>
#include <optional>

namespace {

using fuzz::piece;
using fuzz::require;
using rowlock::errc;
using rowlock::driver::rewrite_placeholders;
using rowlock::driver::rewritten;
using rowlock::driver::spelling;
using rowlock::sql::dialect;

std::optional<rewritten> rewrite(std::string_view text, dialect which, spelling wanted) {
    try {
        return rewrite_placeholders(text, which, wanted);
    } catch (const rowlock::error& refused) {
        const bool for_soci = refused.kind() == errc::unsupported && wanted == spelling::colon_name;
        require(for_soci || refused.kind() == errc::invalid_options, "a refusal has its kind",
                text);
        fuzz::require_no_secret(refused.what());
        return std::nullopt;
    }
}

std::string spelled(std::size_t number, spelling wanted) {
    if (wanted == spelling::question) return "?";
    return (wanted == spelling::dollar            ? "$"
            : wanted == spelling::question_number ? "?"
                                                  : ":p") +
           std::to_string(number);
}

/// The numbers of the parameters that SOCI would find, by its documentation: names after a colon,
/// but not within '…', not :: and not :=.
std::vector<std::size_t> found_by_soci(std::string_view text) {
    std::vector<std::size_t> found;
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\'') quoted = !quoted;
        if (quoted || text[at] != ':') continue;
        const std::string_view behind = text.substr(at + 1);
        if (behind.starts_with(':') || behind.starts_with('=')) {
            ++at;
            continue;
        }
        require(behind.starts_with('p'), "SOCI finds our names alone", text);
        std::size_t number = 0;
        for (const char c : behind.substr(1)) {
            if (c < '0' || c > '9') break;
            number = number * 10 + static_cast<std::size_t>(c - '0');
        }
        found.push_back(number - 1);
    }
    require(!quoted, "SOCI sees every literal end", text);
    return found;
}

void ask_sqlite(const rewritten& made) {
    static sqlite3* const db = [] {
        sqlite3* opened = nullptr;
        sqlite3_open(":memory:", &opened);
        sqlite3_exec(opened, "create table t (a, b, c)", nullptr, nullptr, nullptr);
        return opened;
    }();
    if (made.text.find('\0') != std::string::npos || made.parameters > 1000) return;
    sqlite3_stmt* statement = nullptr;
    const char* rest = nullptr;
    const int code = sqlite3_prepare_v2(db, made.text.c_str(), -1, &statement, &rest);
    if (code == SQLITE_OK && statement != nullptr && *rest == '\0') {
        const auto counted = static_cast<std::size_t>(sqlite3_bind_parameter_count(statement));
        // SQLite's own parameters, such as @a, do not count.
        const bool own = made.text.find_first_of(":@$#") != std::string::npos;
        require(own || counted == made.parameters, "SQLite counts the same", made.text);
    }
    sqlite3_finalize(statement);
}

void rewrite_any_text(std::string_view text, dialect which) {
    const auto dollar = rewrite(text, which, spelling::dollar);
    if (dollar) {
        const auto twice = rewrite(dollar->text, which, spelling::dollar);
        require(twice && twice->text == dollar->text && twice->order == dollar->order,
                "rewriting twice changes nothing", text);
        const auto greatest = std::ranges::max_element(dollar->order);
        require(dollar->parameters == (dollar->order.empty() ? 0 : *greatest + 1), "counted", text);
    }
    for (const spelling wanted :
         {spelling::question, spelling::question_number, spelling::colon_name}) {
        const auto made = rewrite(text, which, wanted);
        if (!made) continue;
        require(dollar.has_value(), "what one spelling takes, $n takes", text);
        require(made->order == dollar->order && made->parameters == dollar->parameters,
                "every spelling finds the same parameters", text);
        if (wanted == spelling::colon_name) {
            require(found_by_soci(made->text) == made->order, "SOCI finds the same", made->text);
        }
        if (wanted == spelling::question) {
            std::size_t digits = 0;
            for (const std::size_t each : made->order) digits += std::to_string(each + 1).size();
            require(made->text.size() + digits == dollar->text.size(), "nothing else", text);
        }
        if (wanted == spelling::question_number && which == dialect::sqlite) ask_sqlite(*made);
    }
}

void rewrite_known_text(fuzz::input& from, dialect which) {
    const auto pieces = fuzz::any_pieces(from, which);
    std::string text;
    std::vector<std::size_t> order;
    for (const piece& each : pieces) {
        text += each.text + " ";
        if (each.is == piece::kind::placeholder) order.push_back(each.number - 1);
    }
    for (const spelling wanted :
         {spelling::dollar, spelling::question, spelling::question_number, spelling::colon_name}) {
        const bool soci = wanted == spelling::colon_name;
        std::string expected;
        for (const piece& each : pieces) {
            const bool placeholder = each.is == piece::kind::placeholder;
            const bool left_out = soci && each.is == piece::kind::comment;
            expected += left_out ? " " : placeholder ? spelled(each.number, wanted) : each.text;
            // The newline that ends a line comment is not part of it.
            if (left_out && each.text.ends_with('\n')) expected += '\n';
            expected += ' ';
        }
        const auto made = rewrite(text, which, wanted);
        if (!made) {
            require(soci, "text of known pieces is rewritten", text);
            continue;
        }
        require(made->text == expected, "placeholders and nothing else", text);
        require(made->order == order, "in their order", text);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::known_or_any(data, size, rewrite_known_text, rewrite_any_text);
}
