// The lexer splits any text without losing or adding a byte, and text that is composed of known
// pieces into exactly these: a literal, a quoted name or a comment is one token, whatever it
// contains.

#include "sql/lexer.hpp"

#include "fuzz/sql_text.hpp"
#include "fuzz/target.hpp"

#include <algorithm>
#include <memory>

namespace {

using fuzz::piece;
using fuzz::require;
using rowlock::sql::dialect;
using rowlock::sql::lexer;
using rowlock::sql::token;
using rowlock::sql::token_kind;

/// Lexes a copy whose memory ends with the text, so that a sanitizer sees a read past the end.
std::vector<token> tokens_of(std::string_view text, dialect which) {
    const auto copy = std::make_unique<char[]>(text.size());
    std::ranges::copy(text, copy.get());
    std::vector<token> all;
    lexer tokens{which, {copy.get(), text.size()}};
    std::size_t end = 0;
    while (const auto next = tokens.next()) {
        require(next->offset == end && !next->text.empty(), "one behind the other", text);
        require(next->text == text.substr(end, next->text.size()), "as written", text);
        end += next->text.size();
        all.push_back({next->kind, text.substr(next->offset, next->text.size()), next->offset});
    }
    require(end == text.size(), "all of the text", text);
    return all;
}

bool is_code(token_kind kind) {
    return kind == token_kind::word || kind == token_kind::number ||
           kind == token_kind::punctuation || kind == token_kind::whitespace;
}

bool fits(const piece& known, token_kind kind) {
    switch (known.is) {
        case piece::kind::code:
            return is_code(kind);
        case piece::kind::placeholder:
            return kind == token_kind::parameter;
        case piece::kind::semicolon:
            return kind == token_kind::punctuation;
        case piece::kind::literal:
            return kind == token_kind::string;
        case piece::kind::name:
            return kind == token_kind::quoted_identifier;
        case piece::kind::comment:
            return kind == token_kind::comment;
    }
    return false;
}

/// The text without the newline that ends a line comment, which is not part of it.
std::string_view without_newline(std::string_view text) {
    return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

void known_text(fuzz::input& from, dialect which) {
    const auto pieces = fuzz::any_pieces(from, which);
    std::string text;
    for (const piece& each : pieces) text += each.text + " ";
    const auto all = tokens_of(text, which);
    auto next = all.begin();
    std::size_t begin = 0;
    for (const piece& each : pieces) {
        const std::string_view whole{each.text};
        const bool one = each.is != piece::kind::code;
        const auto expected = each.is == piece::kind::comment ? without_newline(whole) : whole;
        for (; next != all.end() && next->offset < begin + expected.size(); ++next) {
            // Blanks may belong to the whitespace before.
            const bool blank = next->kind == token_kind::whitespace;
            require((blank && !one) || fits(each, next->kind), "of its kind", text);
            require(!one || next->text == expected, "one token", text);
        }
        begin += whole.size() + 1;
        while (next != all.end() && next->kind == token_kind::whitespace) ++next;
    }
}

void any_text(const std::string& text, dialect which) {
    for (const token& each : tokens_of(text, which)) {
        // An opening quote before a token can change its meaning. Only code has the same meaning
        // alone.
        if (each.kind != token_kind::word && each.kind != token_kind::number) continue;
        const auto alone = tokens_of(each.text, which);
        require(alone.size() == 1 && alone.front().kind == each.kind, "read alike alone", text);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::known_or_any(data, size, known_text, any_text);
}
