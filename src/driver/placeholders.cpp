#include "driver/placeholders.hpp"

#include "base/ascii.hpp"
#include "sql/lexer.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::driver {
namespace {

// The wire protocols of PostgreSQL and MySQL count parameters in 16 bits.
constexpr std::size_t most_parameters = 65535;

using sql::token;
using sql::token_kind;

/// Returns 0 for a number that is none or out of range.
std::size_t number_in(std::string_view digits) {
    std::size_t number = 0;
    for (const char c : digits) {
        if (!ascii::is_digit(c)) return 0;
        number = number * 10 + static_cast<std::size_t>(c - '0');
        if (number > most_parameters) return 0;
    }
    return number;
}

std::string_view prefix_of(spelling wanted) {
    switch (wanted) {
        case spelling::dollar:
            return "$";
        case spelling::question:
        case spelling::question_number:
            return "?";
        case spelling::colon_name:
            return ":p";
    }
    return {};
}

class rewriter {
public:
    rewriter(std::string_view text, sql::dialect speaks, spelling wanted)
        : text_{text}, tokens_{speaks, text}, wanted_{wanted} {
        made_.text.reserve(text.size() + 16);
    }

    rewritten run() && {
        while (const auto next = tokens_.next()) take(*next);
        made_.text += text_.substr(copied_);
        return std::move(made_);
    }

private:
    void take(const token& next) {
        switch (next.kind) {
            case token_kind::comment:
                return take_comment(next);
            case token_kind::string:
            case token_kind::quoted_identifier:
                return check_literal(next.text);
            case token_kind::parameter:
            case token_kind::punctuation:
                return take_sign(next);
            default:
                return;
        }
    }

    void take_comment(const token& comment) {
        // With a blank in the comment's place, MySQL would take two signs before it for a comment.
        const bool behind_signs = text_.substr(0, comment.offset).ends_with("--");
        const bool hint = comment.text.starts_with("/*+");  // for the optimizer
        if (hint || behind_signs) return check_literal(comment.text);
        if (for_soci()) replace(comment, " ");
    }

    /// SOCI treats every ' as the start or end of a literal and every : outside as a parameter.
    void check_literal(std::string_view text) const {
        if (!for_soci()) return;
        bool quoted = false;
        for (const char c : text) {
            if (c == '\'') quoted = !quoted;
            if (c == ':' && !quoted) refuse_for_soci();
        }
        if (quoted) refuse_for_soci();
    }

    /// `?` and `:` may be a database's own parameters or operators.
    void take_sign(const token& sign) {
        const auto text = sign.text;
        if (text.front() == '$' && text.size() > 1 && ascii::is_digit(text[1])) {
            return write_placeholder(sign);
        }
        const bool asks = wanted_ == spelling::question || wanted_ == spelling::question_number;
        if (text.front() == '?' && asks) {
            throw error{errc::invalid_options,
                        "write a statement's parameters as $1 ... $n, not ?"};
        }
        const bool colon = text.front() == ':' && text != "::" && text != ":=";
        if (colon && for_soci()) refuse_for_soci();
    }

    void write_placeholder(const token& placeholder) {
        const auto number = number_in(placeholder.text.substr(1));
        if (number == 0) {
            throw error{errc::invalid_options,
                        "a statement's parameters are $1 to $65535, set apart from what follows"};
        }
        made_.parameters = std::max(made_.parameters, number);
        made_.order.push_back(number - 1);
        replace(placeholder, prefix_of(wanted_));
        if (wanted_ != spelling::question) made_.text += std::to_string(number);
    }

    void replace(const token& old, std::string_view by) {
        made_.text += text_.substr(copied_, old.offset - copied_);
        made_.text += by;
        copied_ = old.offset + old.text.size();
    }

    [[noreturn]] static void refuse_for_soci() {
        throw error{
            errc::unsupported,
            "SOCI would take part of this statement for a parameter; use the database's own "
            "driver, or names without colons and apostrophes"};
    }

    [[nodiscard]] bool for_soci() const { return wanted_ == spelling::colon_name; }

    std::string_view text_;
    std::size_t copied_ = 0;  ///< how much of the text is in `made_`, or replaced there
    sql::lexer tokens_;
    spelling wanted_;
    rewritten made_;
};

}  // namespace

void rewritten::require_parameters(std::size_t given) const {
    if (given == parameters) return;
    throw error{errc::invalid_options, "the statement takes " + std::to_string(parameters) +
                                           " parameters, but " + std::to_string(given) +
                                           " were given"};
}

rewritten rewrite_placeholders(std::string_view text, sql::dialect speaks, spelling wanted) {
    return rewriter{text, speaks, wanted}.run();
}

}  // namespace rowlock::driver
