#include "sql/lexer.hpp"

#include "base/ascii.hpp"

#include <algorithm>
#include <array>

namespace rowlock::sql {
namespace {

enum class character : unsigned char { sign, letter, digit, dollar, blank };

/// On every database bytes above 127 belong to names.
constexpr character classify(unsigned char byte) {
    const char c = static_cast<char>(byte);
    if (ascii::is_letter(c) || c == '_' || byte > 127) return character::letter;
    if (ascii::is_digit(c)) return character::digit;
    if (c == '$') return character::dollar;
    return c == ' ' || (c >= '\t' && c <= '\r') ? character::blank : character::sign;
}

constexpr auto characters = [] {
    std::array<character, 256> all{};
    for (unsigned byte = 0; byte < all.size(); ++byte) {
        all.at(byte) = classify(static_cast<unsigned char>(byte));
    }
    return all;
}();

character kind_of(char c) {
    return characters[static_cast<unsigned char>(c)];
}

bool starts_name(char c) {
    return kind_of(c) == character::letter;
}

bool starts_name_or_number(char c) {
    return starts_name(c) || ascii::is_digit(c);
}

/// What MySQL wants behind the two signs of a comment, of which 5--1 is none.
bool is_blank_or_control(char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
}

}  // namespace

bool in_word(char c) noexcept {
    const auto kind = kind_of(c);
    return kind != character::sign && kind != character::blank;
}

bool is_whitespace(char c) noexcept {
    return kind_of(c) == character::blank;
}

std::string_view dollar_quote_of(const token& one) {
    if (one.kind != token_kind::string || one.text.front() != '$') return {};
    return one.text.substr(0, one.text.find('$', 1) + 1);
}

std::optional<token> lexer::next() {
    if (at_ >= text_.size()) return std::nullopt;
    const auto begin = at_;
    const auto kind = read();
    const token made{kind, text_.substr(begin, at_ - begin), begin};
    if (postgresql()) follow_escape_string(made);
    return made;
}

token_kind lexer::read() {
    switch (kind_of(text_[at_])) {
        case character::letter:
            return read_word();
        case character::digit:
            return read_number();
        case character::dollar:
            return read_dollar();
        case character::blank:
            while (is_whitespace(peek(at_))) ++at_;
            return token_kind::whitespace;
        case character::sign:
            break;
    }
    if (begins_line_comment()) return read_line_comment();
    if (text_[at_] == '/' && peek(at_ + 1) == '*') return read_block_comment();
    const bool continues = escape_string_ == continuation::behind_newline;
    if (begins_string()) return read_string(at_, mysql() || continues);
    if (begins_quoted_identifier()) return read_quoted_identifier();
    return begins_parameter() ? read_parameter() : read_punctuation();
}

token_kind lexer::read_word() {
    const bool e = text_[at_] == 'e' || text_[at_] == 'E';
    if (postgresql() && e && peek(at_ + 1) == '\'') return read_string(at_ + 1, true);
    skip_word();
    return token_kind::word;
}

/// Takes letters behind the digits, too: 0x1f, 1e5, and what no database accepts.
token_kind lexer::read_number() {
    skip_word();
    while (peek(at_) == '.' && ascii::is_digit(peek(at_ + 1))) {
        ++at_;
        skip_word();
    }
    return token_kind::number;
}

/// PostgreSQL's comments end at a carriage return, too.
token_kind lexer::read_line_comment() {
    at_ = std::min(text_.find_first_of(postgresql() ? "\r\n" : "\n", at_), text_.size());
    return token_kind::comment;
}

token_kind lexer::read_block_comment() {
    const std::size_t mark = !mysql() ? 0 : at("/*!") ? 3 : at("/*M!") ? 4 : 0;
    if (mark != 0) {
        in_executable_comment_ = true;
        at_ += mark;
        return token_kind::punctuation;
    }
    if (postgresql()) {
        skip_nested_comment();
    } else {
        skip_past("*/", at_ + 2);
    }
    return token_kind::comment;
}

token_kind lexer::read_string(std::size_t open, bool backslashes) {
    skip_quoted(open, backslashes);
    return token_kind::string;
}

token_kind lexer::read_quoted_identifier() {
    if (text_[at_] == '[') {
        skip_past("]", at_ + 1);
    } else {
        skip_quoted(at_, false);
    }
    return token_kind::quoted_identifier;
}

token_kind lexer::read_dollar() {
    if (const auto mark = dollar_mark(); mark != 0) {
        skip_past(text_.substr(at_, mark), at_ + mark);
        return token_kind::string;
    }
    const bool number = ascii::is_digit(peek(at_ + 1));
    if (!starts_name_or_number(peek(at_ + 1))) return read_punctuation();
    skip_word();
    // MySQL's names may start with $.
    return mysql() && !number ? token_kind::word : token_kind::parameter;
}

token_kind lexer::read_parameter() {
    const bool numbered = text_[at_++] == '?';
    while (sqlite() && (numbered ? ascii::is_digit(peek(at_)) : in_word(peek(at_)))) ++at_;
    return token_kind::parameter;
}

token_kind lexer::read_punctuation() {
    const char c = text_[at_];
    const char next = peek(at_ + 1);
    const bool closes = in_executable_comment_ && c == '*' && next == '/';
    if (closes) in_executable_comment_ = false;
    const bool two = closes || (c == ':' && (next == ':' || next == '='));
    at_ += two ? 2U : 1U;
    return token_kind::punctuation;
}

void lexer::follow_escape_string(const token& one) {
    const char first = one.text.front();
    if (one.kind == token_kind::string) {
        const bool continues = escape_string_ == continuation::behind_newline && first == '\'';
        const bool escapes = continues || first == 'e' || first == 'E';
        escape_string_ = escapes ? continuation::before_newline : continuation::none;
    } else if (escape_string_ == continuation::none) {
        return;
    } else if (one.kind == token_kind::whitespace) {
        const bool newline = one.text.find_first_of("\r\n") != std::string_view::npos;
        if (newline) escape_string_ = continuation::behind_newline;
    } else if (one.kind != token_kind::comment || first != '-') {
        escape_string_ = continuation::none;
    }
}

void lexer::skip_nested_comment() {
    std::size_t depth = 0;
    do {
        const bool opens = at("/*");
        const bool closes = at("*/");
        if (opens) ++depth;
        if (closes) --depth;
        at_ += opens || closes ? 2U : 1U;
    } while (depth > 0 && at_ < text_.size());
}

void lexer::skip_past(std::string_view end, std::size_t from) {
    const auto found = text_.find(end, from);
    at_ = found == std::string_view::npos ? text_.size() : found + end.size();
}

/// Two quotes in a row stand for one.
void lexer::skip_quoted(std::size_t open, bool backslashes) {
    const char quote = text_[open];
    for (at_ = open + 1; at_ < text_.size(); ++at_) {
        if (backslashes && text_[at_] == '\\') {
            ++at_;
        } else if (text_[at_] == quote) {
            ++at_;
            if (peek(at_) != quote) return;
        }
    }
    at_ = text_.size();
}

/// Takes the first character whatever it is.
void lexer::skip_word() {
    auto end = at_ + 1;
    while (end < text_.size() && in_word(text_[end])) ++end;
    at_ = end;
}

bool lexer::begins_line_comment() const {
    if (text_[at_] == '#') return mysql();
    if (text_[at_] != '-' || peek(at_ + 1) != '-') return false;
    return !mysql() || is_blank_or_control(peek(at_ + 2));
}

bool lexer::begins_parameter() const {
    const char c = text_[at_];
    if (c == '?') return !postgresql();
    return sqlite() && (c == ':' || c == '@') && starts_name_or_number(peek(at_ + 1));
}

bool lexer::begins_quoted_identifier() const {
    const char c = text_[at_];
    return (c == '"' && !mysql()) || (c == '`' && !postgresql()) || (c == '[' && sqlite());
}

bool lexer::begins_string() const {
    return text_[at_] == '\'' || (text_[at_] == '"' && mysql());
}

/// Returns the length of the $$ or $tag$ that starts here, or 0. $1 is not a quote.
std::size_t lexer::dollar_mark() const {
    if (!postgresql()) return 0;
    auto end = at_ + 1;
    if (starts_name(peek(end))) {
        while (starts_name_or_number(peek(end))) ++end;
    }
    return peek(end) == '$' ? end + 1 - at_ : 0;
}

}  // namespace rowlock::sql
