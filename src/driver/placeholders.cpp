#include "driver/placeholders.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::driver {
namespace {

// The wire protocols of PostgreSQL and MySQL count parameters in 16 bits.
constexpr std::size_t most_parameters = 65535;

constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

constexpr bool starts_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
}

constexpr bool continues_word(char c) {
    return starts_word(c) || is_digit(c) || c == '$';
}

constexpr bool is_space_or_control(char c) {
    return static_cast<unsigned char>(c) <= ' ';
}

// Reads the text once from left to right. Each skip_… returns the position behind the token that
// starts at `at`; an unterminated token ends with the text, and the server will say so.
class rewriter {
public:
    rewriter(std::string_view text, sql::dialect speaks, spelling wanted)
        : text_{text}, speaks_{speaks}, wanted_{wanted} {
        made_.text.reserve(text.size() + 16);
    }

    rewritten run() && {
        while (at_ < text_.size()) step();
        return std::move(made_);
    }

private:
    void step() {
        const char c = text_[at_];
        if (c == '\'') return copy_literal(skip_quoted(at_, '\'', mysql()));
        if (c == '"') return copy_literal(skip_quoted(at_, '"', mysql()));
        if (c == '`' && speaks_ != sql::dialect::postgresql) {
            return copy_literal(skip_quoted(at_, '`', false));
        }
        if (c == '[' && speaks_ == sql::dialect::sqlite)
            return copy_literal(skip_past("]", at_ + 1));
        if (starts_line_comment()) return pass_comment(skip_line());
        if (starts_with("/*")) return step_over_block_comment();
        if (starts_word(c) || is_digit(c)) return step_over_word();
        if (c == '$') return step_over_dollar();
        if (c == ':' && wanted_ == spelling::colon_name) return step_over_colon();
        if (c == '?' && (wanted_ == spelling::question || wanted_ == spelling::question_number)) {
            throw error{errc::invalid_options,
                        "write a statement's parameters as $1 ... $n, not ?"};
        }
        copy(at_ + 1);
    }

    void step_over_word() {
        std::size_t end = at_;
        while (end < text_.size() && continues_word(text_[end])) ++end;
        const bool escapes = speaks_ == sql::dialect::postgresql && end - at_ == 1 &&
                             (text_[at_] == 'E' || text_[at_] == 'e') && peek(end) == '\'';
        if (escapes) return copy_literal(skip_quoted(end, '\'', true));
        copy(end);
    }

    void step_over_dollar() {
        if (is_digit(peek(at_ + 1))) return write_placeholder();
        if (speaks_ == sql::dialect::postgresql) {
            const std::size_t tag_end = skip_dollar_tag();
            if (tag_end != at_) {
                return copy_literal(skip_past(text_.substr(at_, tag_end - at_), tag_end));
            }
        }
        copy(at_ + 1);
    }

    void step_over_block_comment() {
        // MySQL runs the content of /*! … */ and /*M! … */, so it is read like any other text.
        if (mysql() && starts_with("/*!")) return copy(at_ + 3);
        if (mysql() && starts_with("/*M!")) return copy(at_ + 4);
        const bool hint = starts_with("/*+");
        const std::size_t end = skip_block_comment();
        if (hint) return copy_literal(end);
        pass_comment(end);
    }

    void step_over_colon() {
        if (peek(at_ + 1) == ':' || peek(at_ + 1) == '=') return copy(at_ + 2);
        refuse_for_soci();
    }

    void write_placeholder() {
        std::size_t end = at_ + 1;
        std::size_t number = 0;
        for (; is_digit(peek(end)); ++end) {
            number = std::min(number * 10 + static_cast<std::size_t>(text_[end] - '0'),
                              most_parameters + 1);
        }
        if (number == 0 || number > most_parameters || continues_word(peek(end))) {
            throw error{errc::invalid_options,
                        "a statement's parameters are $1 to $65535, set apart from what follows"};
        }
        made_.parameters = std::max(made_.parameters, number);
        made_.order.push_back(number - 1);
        switch (wanted_) {
            case spelling::dollar:
                made_.text += '$';
                break;
            case spelling::question:
                made_.text += '?';
                break;
            case spelling::question_number:
                made_.text += '?';
                break;
            case spelling::colon_name:
                made_.text += ":p";
                break;
        }
        if (wanted_ != spelling::question) made_.text += std::to_string(number);
        at_ = end;
    }

    [[nodiscard]] std::size_t skip_quoted(std::size_t open, char quote, bool backslash) const {
        std::size_t end = open + 1;
        while (end < text_.size()) {
            const char c = text_[end];
            if (c == '\\' && backslash) {
                end += 2;
            } else if (c != quote) {
                ++end;
            } else if (peek(end + 1) == quote) {
                end += 2;
            } else {
                return end + 1;
            }
        }
        return text_.size();
    }

    [[nodiscard]] std::size_t skip_past(std::string_view closing, std::size_t from) const {
        const std::size_t found = text_.find(closing, from);
        return found == std::string_view::npos ? text_.size() : found + closing.size();
    }

    [[nodiscard]] std::size_t skip_line() const {
        return std::min(text_.find('\n', at_), text_.size());
    }

    [[nodiscard]] std::size_t skip_block_comment() const {
        if (speaks_ != sql::dialect::postgresql) return skip_past("*/", at_ + 2);
        std::size_t depth = 0;
        for (std::size_t end = at_; end < text_.size(); ++end) {
            const std::string_view two = text_.substr(end, 2);
            if (two == "/*") {
                ++depth;
                ++end;
            } else if (two == "*/") {
                ++end;
                if (--depth == 0) return end + 1;
            }
        }
        return text_.size();
    }

    // Returns the position after the second $ of $$ or $tag$, or `at_` if this is no opening quote.
    [[nodiscard]] std::size_t skip_dollar_tag() const {
        std::size_t end = at_ + 1;
        if (starts_word(peek(end))) {
            while (starts_word(peek(end)) || is_digit(peek(end))) ++end;
        }
        return peek(end) == '$' ? end + 1 : at_;
    }

    [[nodiscard]] bool starts_line_comment() const {
        if (text_[at_] == '#') return mysql();
        if (!starts_with("--")) return false;
        // MySQL takes 5--1 for 5 minus minus 1.
        return !mysql() || at_ + 2 == text_.size() || is_space_or_control(text_[at_ + 2]);
    }

    void copy(std::size_t end) {
        end = std::min(end, text_.size());
        made_.text.append(text_.substr(at_, end - at_));
        at_ = end;
    }

    // SOCI treats every ' as the start or end of a literal and every : outside as a parameter.
    void copy_literal(std::size_t end) {
        if (wanted_ == spelling::colon_name) {
            bool quoted = false;
            for (const char c : text_.substr(at_, end - at_)) {
                if (c == '\'') quoted = !quoted;
                if (c == ':' && !quoted) refuse_for_soci();
            }
            if (quoted) refuse_for_soci();
        }
        copy(end);
    }

    void pass_comment(std::size_t end) {
        if (wanted_ != spelling::colon_name) return copy(end);
        made_.text += ' ';
        at_ = end;
    }

    [[noreturn]] static void refuse_for_soci() {
        throw error{
            errc::unsupported,
            "SOCI would take part of this statement for a parameter; use the database's own "
            "driver, or names without colons and apostrophes"};
    }

    [[nodiscard]] bool mysql() const { return speaks_ == sql::dialect::mysql; }
    [[nodiscard]] bool starts_with(std::string_view what) const {
        return text_.substr(at_).starts_with(what);
    }
    [[nodiscard]] char peek(std::size_t where) const {
        return where < text_.size() ? text_[where] : '\0';
    }

    std::string_view text_;
    sql::dialect speaks_;
    spelling wanted_;
    std::size_t at_ = 0;
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
