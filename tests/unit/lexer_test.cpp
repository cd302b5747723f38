#include "sql/lexer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using rowlock::sql::dialect;
using rowlock::sql::dollar_quote_of;
using rowlock::sql::lexer;
using rowlock::sql::token;
using rowlock::sql::token_kind;

constexpr dialect all_dialects[] = {dialect::postgresql, dialect::mysql, dialect::sqlite};

std::vector<token> tokens_of(dialect speaks, std::string_view text) {
    std::vector<token> all;
    lexer tokens{speaks, text};
    while (const auto each = tokens.next()) all.push_back(*each);
    return all;
}

char letter_of(token_kind kind) {
    switch (kind) {
        case token_kind::word:
            return 'w';
        case token_kind::quoted_identifier:
            return 'i';
        case token_kind::string:
            return 's';
        case token_kind::number:
            return 'n';
        case token_kind::parameter:
            return 'p';
        case token_kind::comment:
            return 'c';
        case token_kind::punctuation:
            return '.';
        case token_kind::whitespace:
            return ' ';
    }
    return '?';
}

/// The tokens between bars, each after the letter of its kind, without whitespace.
std::string read(dialect speaks, std::string_view text) {
    std::string made = "|";
    for (const token& each : tokens_of(speaks, text)) {
        if (each.kind == token_kind::whitespace) continue;
        made.append(1, letter_of(each.kind)).append(" ").append(each.text).append("|");
    }
    return made;
}

std::string in_postgresql(std::string_view text) {
    return read(dialect::postgresql, text);
}

std::string in_mysql(std::string_view text) {
    return read(dialect::mysql, text);
}

std::string in_sqlite(std::string_view text) {
    return read(dialect::sqlite, text);
}

bool tile(const std::vector<token>& all, std::string_view text) {
    std::size_t end = 0;
    for (const token& each : all) {
        if (each.offset != end || each.text.empty()) return false;
        if (each.text.data() != text.data() + end) return false;
        end += each.text.size();
    }
    return end == text.size();
}

/// Reads a copy that ends where its memory does, so that a sanitizer sees a read past the end.
void read_to_the_end(dialect speaks, std::string_view text) {
    const auto copy = std::make_unique<char[]>(text.size());
    std::ranges::copy(text, copy.get());
    const std::string_view exact{copy.get(), text.size()};
    CHECK(tile(tokens_of(speaks, exact), exact));
}

}  // namespace

TEST_CASE("words, numbers and punctuation are the same on every database") {
    for (const dialect speaks : all_dialects) {
        CHECK(read(speaks, "Select a_1, b.c from t;") ==
              "|w Select|w a_1|. ,|w b|. .|w c|w from|w t|. ;|");
        CHECK(read(speaks, "1 1.5 0x1f 1e5 a1 1..2") ==
              "|n 1|n 1.5|n 0x1f|n 1e5|w a1|n 1|. .|. .|n 2|");
        CHECK(read(speaks, "\xc3\xa4$1 a$b _") == "|w \xc3\xa4$1|w a$b|w _|");
        CHECK(read(speaks, "a::b := c <= d") == "|w a|. ::|w b|. :=|w c|. <|. =|w d|");
        CHECK(tokens_of(speaks, "").empty());
    }
}

TEST_CASE("tokens have their offsets, and together make up the text") {
    const std::string_view text = "select\t'a' -- b\n, \"c\"";
    for (const dialect speaks : all_dialects) {
        const auto all = tokens_of(speaks, text);
        CHECK(tile(all, text));
        REQUIRE(all.size() == 9);
        CHECK(all[1].kind == token_kind::whitespace);
        CHECK(all[2].text == "'a'");
        CHECK(all[2].offset == 7);
        CHECK(all[4].text == "-- b");
        CHECK(all[8].offset == text.size() - 3);
    }
}

TEST_CASE("$1 is a parameter everywhere, and characters that follow directly are part of it") {
    for (const dialect speaks : all_dialects) {
        CHECK(read(speaks, "$1,$23+a$4") == "|p $1|. ,|p $23|. +|w a$4|");
        CHECK(read(speaks, "$1a $1$2") == "|p $1a|p $1$2|");
        CHECK(read(speaks, "$ $") == "|. $|. $|");
    }
}

TEST_CASE("other parameters depend on the dialect") {
    CHECK(in_postgresql("a ? b") == "|w a|. ?|w b|");
    CHECK(in_mysql("?,?1") == "|p ?|. ,|p ?|n 1|");
    CHECK(in_sqlite("?,?12,:a,@b1,$c") == "|p ?|. ,|p ?12|. ,|p :a|. ,|p @b1|. ,|p $c|");
    CHECK(in_mysql(":a @b $c") == "|. :|w a|. @|w b|w $c|");
    CHECK(in_postgresql("a[1:b]") == "|w a|. [|n 1|. :|w b|. ]|");
}

TEST_CASE("each database has its own quotes for names") {
    CHECK(in_postgresql("\"a\"\"b\" `c` [d]") == "|i \"a\"\"b\"|. `|w c|. `|. [|w d|. ]|");
    CHECK(in_mysql("\"a\"\"b\" `c``d` [e]") == "|s \"a\"\"b\"|i `c``d`|. [|w e|. ]|");
    CHECK(in_sqlite("\"a\"\"b\" `c``d` [e'f]") == "|i \"a\"\"b\"|i `c``d`|i [e'f]|");
    CHECK(in_mysql(R"(`a\` b)") == R"(|i `a\`|w b|)");
    CHECK(in_postgresql(R"("a\" b)") == R"(|i "a\"|w b|)");
}

TEST_CASE("a doubled quote stands for itself") {
    for (const dialect speaks : all_dialects) {
        CHECK(read(speaks, "'it''s' '' ''''") == "|s 'it''s'|s ''|s ''''|");
        CHECK(read(speaks, "'a' 'b'") == "|s 'a'|s 'b'|");
    }
}

TEST_CASE("a backslash escapes in MySQL's literals and in PostgreSQL's E''") {
    CHECK(in_mysql(R"('\' a' "\" b" c)") == R"(|s '\' a'|s "\" b"|w c|)");
    CHECK(in_mysql(R"('\\' a)") == R"(|s '\\'|w a|)");
    CHECK(in_postgresql(R"('\' a)") == R"(|s '\'|w a|)");
    CHECK(in_postgresql(R"(E'\' a' e'\\' b)") == R"(|s E'\' a'|s e'\\'|w b|)");
    CHECK(in_postgresql(R"(nameE'\' a)") == R"(|w nameE|s '\'|w a|)");
    CHECK(in_postgresql(R"(B'\' a)") == R"(|w B|s '\'|w a|)");
    CHECK(in_sqlite(R"(E'\' a)") == R"(|w E|s '\'|w a|)");
}

TEST_CASE("PostgreSQL continues an E'' string after a newline, with its escapes") {
    CHECK(in_postgresql("E'a'\n'\\' b' c") == "|s E'a'|s '\\' b'|w c|");
    CHECK(in_postgresql("E'a' -- d\n \r'\\' b'\n'\\'' c") ==
          "|s E'a'|c -- d|s '\\' b'|s '\\''|w c|");
    CHECK(in_postgresql("E'a' '\\' b") == "|s E'a'|s '\\'|w b|");
    CHECK(in_postgresql("E'a' '\\'\n'\\' b") == "|s E'a'|s '\\'|s '\\'|w b|");
    CHECK(in_postgresql("E'a'/*\n*/\n'\\' b") == "|s E'a'|c /*\n*/|s '\\'|w b|");
    CHECK(in_postgresql("E'a',\n'\\' b") == "|s E'a'|. ,|s '\\'|w b|");
    CHECK(in_postgresql("'a'\n'\\' b") == "|s 'a'|s '\\'|w b|");
}

TEST_CASE("PostgreSQL's dollar quotes end with their opening tag") {
    CHECK(in_postgresql("$$ ' -- $$ a") == "|s $$ ' -- $$|w a|");
    CHECK(in_postgresql("$a1$ $$ $b$ $a1$ a") == "|s $a1$ $$ $b$ $a1$|w a|");
    CHECK(in_postgresql("a$$ b $$") == "|w a$$|w b|s $$|");
    CHECK(in_postgresql("$1a$ b $1a$") == "|p $1a$|w b|p $1a$|");
    CHECK(in_mysql("$$ $1") == "|. $|. $|p $1|");
    CHECK(in_sqlite("$$ $1") == "|. $|. $|p $1|");
}

TEST_CASE("the tag of a dollar quote is distinguished from other strings") {
    const auto mark = [](std::string_view text) {
        return dollar_quote_of(tokens_of(dialect::postgresql, text).front());
    };
    CHECK(mark("$$ a $$") == "$$");
    CHECK(mark("$a$ b") == "$a$");
    CHECK(mark("'$$'").empty());
    CHECK(mark("$1").empty());
    CHECK(mark("a$$").empty());
}

TEST_CASE("a line comment ends before its newline") {
    CHECK(in_postgresql("a -- it's\nb") == "|w a|c -- it's|w b|");
    CHECK(in_sqlite("a --it's\nb") == "|w a|c --it's|w b|");
    CHECK(in_mysql("a # it's\nb") == "|w a|c # it's|w b|");
    CHECK(in_postgresql("a # b") == "|w a|. #|w b|");
    CHECK(in_sqlite("a # b") == "|w a|. #|w b|");
}

TEST_CASE("a carriage return ends a line comment only on PostgreSQL") {
    CHECK(in_postgresql("-- a\rb") == "|c -- a|w b|");
    CHECK(in_mysql("-- a\rb\nc") == "|c -- a\rb|w c|");
    CHECK(in_sqlite("-- a\rb\nc") == "|c -- a\rb|w c|");
}

TEST_CASE("MySQL requires a blank or a control character after the two minus signs of a comment") {
    CHECK(in_mysql("5--1") == "|n 5|. -|. -|n 1|");
    CHECK(in_mysql("5--\t1\n--\x7f'\na --") == "|n 5|c --\t1|c --\x7f'|w a|c --|");
    CHECK(in_postgresql("5--1") == "|n 5|c --1|");
    CHECK(in_sqlite("5--1") == "|n 5|c --1|");
}

TEST_CASE("block comments nest only on PostgreSQL") {
    CHECK(in_postgresql("/* /* */ a */ b") == "|c /* /* */ a */|w b|");
    CHECK(in_postgresql("/*/ a */ b") == "|c /*/ a */|w b|");
    CHECK(in_mysql("/* /* */ a") == "|c /* /* */|w a|");
    CHECK(in_sqlite("/* /* */ a") == "|c /* /* */|w a|");
    CHECK(in_mysql("/*+ hint */ a") == "|c /*+ hint */|w a|");
}

TEST_CASE("a comment that MySQL executes is code") {
    CHECK(in_mysql("/*!50000 'a' */ b") == "|. /*!|n 50000|s 'a'|. */|w b|");
    CHECK(in_mysql("/*M! a */ b") == "|. /*M!|w a|. */|w b|");
    CHECK(in_mysql("/*! a /* b */ */ c") == "|. /*!|w a|c /* b */|. */|w c|");
    CHECK(in_mysql("/*!1*/*2*/3") == "|. /*!|n 1|. */|. *|n 2|. *|. /|n 3|");
    CHECK(in_mysql("2*/* a */3") == "|n 2|. *|c /* a */|n 3|");
    CHECK(in_postgresql("/*! a */ b") == "|c /*! a */|w b|");
    CHECK(in_sqlite("/*! a */ b") == "|c /*! a */|w b|");
}

TEST_CASE("an unterminated token extends to the end of the text") {
    for (const dialect speaks : all_dialects) {
        for (const std::string_view text :
             {"'a; b", "'a''", "\"a; b", "/* a", "/*", "-- a", "--"}) {
            CAPTURE(text);
            CHECK(tokens_of(speaks, text).size() == 1);
            read_to_the_end(speaks, text);
        }
    }
    CHECK(in_postgresql("E'a\\") == "|s E'a\\|");
    CHECK(in_postgresql("E'a\\'") == "|s E'a\\'|");
    CHECK(in_postgresql("$a$ b $a") == "|s $a$ b $a|");
    CHECK(in_postgresql("/* /* */") == "|c /* /* */|");
    CHECK(in_mysql("'a\\") == "|s 'a\\|");
    CHECK(in_mysql("`a``") == "|i `a``|");
    CHECK(in_sqlite("[a") == "|i [a|");
}

TEST_CASE("a text may end anywhere") {
    const std::string_view whole =
        "select E'a\\'' , $a$ b $a$, \"c\"\"d\", 'e''f' /* /* */ */ -- g\n, $12 :h ::i := ?3 "
        "@j `k``l` [m] # n\n /*! o */ /*M! p */ 1.5 e'";
    for (const dialect speaks : all_dialects) {
        for (std::size_t begin = 0; begin <= whole.size(); ++begin) {
            for (std::size_t length = 0; length <= 12; ++length) {
                read_to_the_end(speaks, whole.substr(begin, length));
            }
        }
    }
}

TEST_CASE("the tokens of any text make up all of it") {
    const std::string_view alphabet = "'\"`[]$1209aE\\-/*!#:?=@;.\n\r M\xc3\x7f";
    std::uint64_t state = 20261123;
    const auto below = [&](std::size_t limit) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::size_t>(state >> 33) % limit;
    };
    for (int round = 0; round < 100'000; ++round) {
        std::string text;
        for (auto length = below(14); length > 0; --length)
            text += alphabet[below(alphabet.size())];
        for (const dialect speaks : all_dialects) REQUIRE(tile(tokens_of(speaks, text), text));
    }
}
