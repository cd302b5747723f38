#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <optional>
#include <string_view>

namespace rowlock::sql {

/// What a token is. Keywords and names are both words.
enum class token_kind : unsigned char {
    word,
    quoted_identifier,  ///< "…", `…` or […], as the dialect has them
    string,             ///< '…', E'…', $$…$$; "…" on MySQL
    number,             ///< the sign of an exponent is punctuation
    parameter,          ///< $1 everywhere; ? on MySQL and SQLite; ?1, :a, @a and $a on SQLite
    comment,            ///< a line comment ends before its newline
    punctuation,        ///< one character; or ::, := and the marks of MySQL's executable comments
    whitespace,
};

struct token {
    token_kind kind;
    std::string_view text;  ///< as written, with its quotes
    std::size_t offset;     ///< where the token starts in the lexer's text
};

/// Splits SQL into tokens as the database does, so that no literal and no comment hides code. The
/// tokens are parts of the text; one after the other they are all of it. What is not terminated
/// reaches to the end of the text.
///
/// Assumes the servers' default modes: PostgreSQL's standard_conforming_strings is on; on MySQL a
/// backslash escapes in literals, and "…" is one (neither NO_BACKSLASH_ESCAPES nor ANSI_QUOTES).
/// MySQL runs the content of /*! … */ and MariaDB that of /*M! … */, depending on their versions:
/// the marks are punctuation, and the content is code.
class lexer {
public:
    lexer(dialect speaks, std::string_view text) : speaks_{speaks}, text_{text} {}

    /// Returns nullopt at the end of the text.
    [[nodiscard]] std::optional<token> next();

private:
    /// PostgreSQL continues a string with the next '…' if there is a newline between the two; an
    /// E'…' keeps its escapes.
    enum class continuation : unsigned char { none, before_newline, behind_newline };

    token_kind read();
    token_kind read_block_comment();
    token_kind read_dollar();
    token_kind read_line_comment();
    token_kind read_number();
    token_kind read_parameter();
    token_kind read_punctuation();
    token_kind read_quoted_identifier();
    token_kind read_string(std::size_t open, bool backslashes);
    token_kind read_word();

    void follow_escape_string(const token& one);
    void skip_nested_comment();
    void skip_past(std::string_view end, std::size_t from);
    void skip_quoted(std::size_t open, bool backslashes);
    void skip_word();

    [[nodiscard]] bool begins_line_comment() const;
    [[nodiscard]] bool begins_parameter() const;
    [[nodiscard]] bool begins_quoted_identifier() const;
    [[nodiscard]] bool begins_string() const;
    [[nodiscard]] std::size_t dollar_mark() const;
    [[nodiscard]] bool mysql() const { return speaks_ == dialect::mysql; }
    [[nodiscard]] bool postgresql() const { return speaks_ == dialect::postgresql; }
    [[nodiscard]] bool sqlite() const { return speaks_ == dialect::sqlite; }
    [[nodiscard]] bool at(std::string_view what) const {
        return text_.substr(at_).starts_with(what);
    }
    [[nodiscard]] char peek(std::size_t where) const {
        return where < text_.size() ? text_[where] : '\0';
    }

    dialect speaks_;
    bool in_executable_comment_ = false;
    continuation escape_string_ = continuation::none;
    std::string_view text_;
    std::size_t at_ = 0;
};

/// Whether an unquoted name may contain the character behind its first one.
[[nodiscard]] bool in_word(char c) noexcept;

/// Whether the database separates words by it: a blank, a tab, an end of line or page.
[[nodiscard]] bool is_whitespace(char c) noexcept;

/// The $$ or $tag$ that opens a dollar-quoted string; empty for any other token.
[[nodiscard]] std::string_view dollar_quote_of(const token& one);

}  // namespace rowlock::sql
