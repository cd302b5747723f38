#include "driver/placeholders.hpp"

#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using rowlock::errc;
using rowlock::driver::rewrite_placeholders;
using rowlock::driver::spelling;
using rowlock::sql::dialect;
using order = std::vector<std::size_t>;

std::string converted_for_postgresql(const std::string& text) {
    return rewrite_placeholders(text, dialect::postgresql, spelling::question).text;
}

std::string converted_for_mysql(const std::string& text) {
    return rewrite_placeholders(text, dialect::mysql, spelling::question).text;
}

std::string converted_for_sqlite(const std::string& text) {
    return rewrite_placeholders(text, dialect::sqlite, spelling::question_number).text;
}

std::string for_soci(const std::string& text, dialect speaks = dialect::postgresql) {
    return rewrite_placeholders(text, speaks, spelling::colon_name).text;
}

template <typename Call>
errc kind_of_failure(Call call) {
    try {
        call();
    } catch (const rowlock::error& e) {
        return e.kind();
    }
    return errc{};
}

// A small deterministic generator, so that a failure can be repeated.
class dice {
public:
    explicit dice(std::uint64_t seed) : state_{seed} {}
    std::size_t below(std::size_t limit) {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::size_t>(state_ >> 33) % limit;
    }

private:
    std::uint64_t state_;
};

}  // namespace

TEST_CASE("each spelling writes the same parameters its own way") {
    const std::string text = "update t set a = $2 where b = $1 and c = $2";
    const auto written = [&](spelling wanted) {
        return rewrite_placeholders(text, dialect::mysql, wanted);
    };
    CHECK(written(spelling::dollar).text == text);
    CHECK(written(spelling::question).text == "update t set a = ? where b = ? and c = ?");
    CHECK(written(spelling::question_number).text == "update t set a = ?2 where b = ?1 and c = ?2");
    CHECK(written(spelling::colon_name).text == "update t set a = :p2 where b = :p1 and c = :p2");
    for (const spelling wanted :
         {spelling::dollar, spelling::question, spelling::question_number, spelling::colon_name}) {
        CHECK(written(wanted).order == order{1, 0, 1});
        CHECK(written(wanted).parameters == 2);
    }
}

TEST_CASE("a statement without parameters accepts none") {
    const auto made = rewrite_placeholders("select 1", dialect::mysql, spelling::question);
    CHECK(made.text == "select 1");
    CHECK(made.order.empty());
    CHECK(made.parameters == 0);
    CHECK(rewrite_placeholders("", dialect::mysql, spelling::question).text.empty());
}

TEST_CASE("the count of parameters is the greatest number, and is required exactly") {
    const auto made = rewrite_placeholders("select $12", dialect::mysql, spelling::question);
    CHECK(made.parameters == 12);
    CHECK(made.order == order{11});
    CHECK_NOTHROW(made.require_parameters(12));
    CHECK(kind_of_failure([&] { made.require_parameters(11); }) == errc::invalid_options);
    CHECK(kind_of_failure([&] { made.require_parameters(13); }) == errc::invalid_options);
}

TEST_CASE("literals of every dialect are left alone") {
    CHECK(converted_for_postgresql("'$1' $1") == "'$1' ?");
    CHECK(converted_for_postgresql("'it''s $1' $1") == "'it''s $1' ?");
    CHECK(converted_for_postgresql("'' $1") == "'' ?");
    CHECK(converted_for_mysql("'$1' \"$1\" $1") == "'$1' \"$1\" ?");
    CHECK(converted_for_mysql("\"a\"\"$1\" $1") == "\"a\"\"$1\" ?");
    CHECK(converted_for_sqlite("'it''s $1' $1") == "'it''s $1' ?1");
}

TEST_CASE("a backslash escapes in MySQL's literals and in PostgreSQL's E'', nowhere else") {
    CHECK(converted_for_mysql(R"('\' $1' $1)") == R"('\' $1' ?)");
    CHECK(converted_for_mysql(R"("\" $1" $1)") == R"("\" $1" ?)");
    CHECK(converted_for_mysql(R"('\\' $1)") == R"('\\' ?)");
    CHECK(converted_for_postgresql(R"('\' $1 '$1')") == R"('\' ? '$1')");
    CHECK(converted_for_postgresql(R"(E'\' $1' $1)") == R"(E'\' $1' ?)");
    CHECK(converted_for_postgresql(R"(e'\\' $1)") == R"(e'\\' ?)");
    CHECK(converted_for_sqlite(R"('\' $1)") == R"('\' ?1)");
    CHECK(converted_for_postgresql("E'a'\n'\\' $1' $1") == "E'a'\n'\\' $1' ?");
}

TEST_CASE("only the word E makes an escape string") {
    CHECK(converted_for_postgresql(R"(nameE'\' $1)") == R"(nameE'\' ?)");
    CHECK(converted_for_postgresql(R"(1E'\' $1)") == R"(1E'\' ?)");
    CHECK(converted_for_postgresql(R"(B'\' $1)") == R"(B'\' ?)");
    CHECK(converted_for_sqlite(R"(E'\' $1)") == R"(E'\' ?1)");
}

TEST_CASE("quoted identifiers are left alone") {
    CHECK(converted_for_postgresql(R"("$1""$1" $1)") == R"("$1""$1" ?)");
    CHECK(converted_for_mysql("`$1``$1` $1") == "`$1``$1` ?");
    CHECK(converted_for_mysql(R"(`a\` $1)") == R"(`a\` ?)");
    CHECK(converted_for_sqlite("[it's $1] \"$1\" `$1` $1") == "[it's $1] \"$1\" `$1` ?1");
    CHECK(converted_for_postgresql("a[$1]") == "a[?]");
}

TEST_CASE("comments are left alone") {
    CHECK(converted_for_postgresql("-- $1 it's\n$1") == "-- $1 it's\n?");
    CHECK(converted_for_postgresql("/* $1 ' */ $1") == "/* $1 ' */ ?");
    CHECK(converted_for_postgresql("$1 --") == "? --");
    CHECK(converted_for_mysql("# $1 '\n$1") == "# $1 '\n?");
    CHECK(converted_for_mysql("-- $1 '\n$1 --\t$1") == "-- $1 '\n? --\t$1");
    CHECK(converted_for_mysql("/* $1 ' */ $1") == "/* $1 ' */ ?");
    CHECK(converted_for_sqlite("-- $1 '\n/* $1 ' */ $1") == "-- $1 '\n/* $1 ' */ ?1");
    CHECK(converted_for_postgresql("-- $1 '\r$1") == "-- $1 '\r?");
    CHECK(converted_for_mysql("--\x7f$1 '\n$1") == "--\x7f$1 '\n?");
}

TEST_CASE("block comments nest in PostgreSQL only") {
    CHECK(converted_for_postgresql("/* /* */ $1 */ $1") == "/* /* */ $1 */ ?");
    CHECK(converted_for_postgresql("/*/ $1 */ $1") == "/*/ $1 */ ?");
    CHECK(converted_for_mysql("/* /* */ $1") == "/* /* */ ?");
    CHECK(converted_for_sqlite("/* /* */ $1") == "/* /* */ ?1");
}

TEST_CASE("MySQL takes two minus signs for a comment only before whitespace") {
    CHECK(converted_for_mysql("5--$1") == "5--?");
    CHECK(converted_for_postgresql("5--$1") == "5--$1");
    CHECK(converted_for_sqlite("5--$1") == "5--$1");
}

TEST_CASE("MySQL's executable comments hold parameters like other text") {
    CHECK(converted_for_mysql("select /*!50000 $1, */ /*M! $2 */ '$1'") ==
          "select /*!50000 ?, */ /*M! ? */ '$1'");
    CHECK(converted_for_mysql("/*!1*/*$1") == "/*!1*/*?");
}

TEST_CASE("dollar quotes are left alone") {
    CHECK(converted_for_postgresql("$$ $1 ' $$ $1") == "$$ $1 ' $$ ?");
    CHECK(converted_for_postgresql("$a$ $1 $b$ $$ $a$ $1") == "$a$ $1 $b$ $$ $a$ ?");
    CHECK(converted_for_postgresql("$a1$ $1 $a1$ $1") == "$a1$ $1 $a1$ ?");
    CHECK(converted_for_postgresql("a$$ $1 $$") == "a$$ ? $$");
    CHECK(converted_for_postgresql("$ $1") == "$ ?");
    CHECK(converted_for_mysql("$$ $1 $$") == "$$ ? $$");
}

TEST_CASE("casts, words and operators are not parameters") {
    CHECK(converted_for_postgresql("$1::text, a::b, c:=d") == "?::text, a::b, c:=d");
    CHECK(converted_for_postgresql("a$1 _$1 \xc3\xa4$1 $1") == "a$1 _$1 \xc3\xa4$1 ?");
    CHECK(converted_for_postgresql("($1)+$2-$3/$4") == "(?)+?-?/?");
    CHECK(converted_for_mysql("@v := $1 / 2 - 1") == "@v := ? / 2 - 1");
}

TEST_CASE("an unterminated literal extends to the end of the text and is left to the server") {
    for (const std::string text : {"'$1", "\"$1", "/* $1", "/*", "-- $1", "'a''", "select 1 /"}) {
        CAPTURE(text);
        CHECK(converted_for_postgresql(text) == text);
        CHECK(converted_for_mysql(text) == text);
        CHECK(converted_for_sqlite(text) == text);
    }
    CHECK(converted_for_postgresql("$a$ $1") == "$a$ $1");
    CHECK(converted_for_postgresql("E'\\") == "E'\\");
    CHECK(converted_for_mysql("'\\") == "'\\");
    CHECK(converted_for_mysql("`$1") == "`$1");
    CHECK(converted_for_sqlite("[$1") == "[$1");
}

TEST_CASE("a parameter out of range or directly followed by a word is refused") {
    for (const std::string text :
         {"$0", "$65536", "$99999999999999999999999999", "$1a", "$1_", "$1$2", "$1\xc3\xa4"}) {
        CAPTURE(text);
        CHECK(kind_of_failure([&] { (void)converted_for_mysql(text); }) == errc::invalid_options);
        CHECK(kind_of_failure([&] { (void)converted_for_postgresql(text); }) ==
              errc::invalid_options);
    }
    CHECK(rewrite_placeholders("$65535", dialect::mysql, spelling::question).parameters == 65535);
    CHECK(converted_for_mysql("$01") == "?");
}

TEST_CASE("a bare question mark is refused where it means a parameter") {
    CHECK(kind_of_failure([] { (void)converted_for_mysql("select ?"); }) == errc::invalid_options);
    CHECK(kind_of_failure([] { (void)converted_for_sqlite("select ?1"); }) ==
          errc::invalid_options);
    CHECK(converted_for_mysql("select '?' /* ? */") == "select '?' /* ? */");
    CHECK(rewrite_placeholders("a ? b", dialect::postgresql, spelling::dollar).text == "a ? b");
}

TEST_CASE("SOCI gets no comments, in which it would find quotes and parameters") {
    CHECK(for_soci("select 1 -- it's :a\n+ $1") == "select 1  \n+ :p1");
    CHECK(for_soci("select /* it's :a */ $1") == "select   :p1");
    CHECK(for_soci("select /*+ hint */ $1", dialect::mysql) == "select /*+ hint */ :p1");
    CHECK(for_soci("select /*!50000 $1 */", dialect::mysql) == "select /*!50000 :p1 */");
    CHECK(for_soci("select 5--/* a */$1", dialect::mysql) == "select 5--/* a */:p1");
}

TEST_CASE("SOCI gets no text that it would misread") {
    CHECK(for_soci("$1::text := ':a' 'it''s' \"a\"") == ":p1::text := ':a' 'it''s' \"a\"");
    CHECK(for_soci("E'a\\n:'") == "E'a\\n:'");
    for (const std::string text :
         {":a", "a[1:2]", "\"a:b\"", "\"a'b\"", "$$it's$$", "$$a:b$$", "E'it\\'s'"}) {
        CAPTURE(text);
        CHECK(kind_of_failure([&] { (void)for_soci(text); }) == errc::unsupported);
    }
    CHECK(kind_of_failure([] { (void)for_soci("'it\\'s'", dialect::mysql); }) == errc::unsupported);
    CHECK(kind_of_failure([] { (void)for_soci("/*+ it's */", dialect::mysql); }) ==
          errc::unsupported);
}

TEST_CASE("any text is read to its end, and rewriting to $n changes nothing") {
    const std::string alphabet = "'\"`[]$1209aE\\-/*!#:?=\n M\xc3";
    dice random{20240501};
    for (int round = 0; round < 200'000; ++round) {
        std::string text;
        for (std::size_t length = random.below(14); length > 0; --length) {
            text += alphabet[random.below(alphabet.size())];
        }
        for (const dialect speaks : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
            try {
                const auto kept = rewrite_placeholders(text, speaks, spelling::dollar);
                const bool zeros = text.find("$0") != std::string::npos;  // $01 becomes $1
                if (!zeros) REQUIRE(kept.text == text);
                const auto asked = rewrite_placeholders(text, speaks, spelling::question);
                REQUIRE(asked.order == kept.order);
                REQUIRE(asked.parameters == kept.parameters);
            } catch (const rowlock::error& e) {
                REQUIRE(e.kind() == errc::invalid_options);
            }
        }
    }
}
