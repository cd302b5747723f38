#include "sql/identifier.hpp"

#include "support/failure.hpp"

#include <doctest/doctest.h>

#include <string>

using rowlock::errc;
using rowlock::sql::dialect;
using rowlock::sql::quoted;
using rowlock::sql::quoted_table;
using support::kind_of;

TEST_CASE("a name is quoted as its database wants, and its own quotes cannot end it") {
    CHECK(quoted(dialect::postgresql, "stock") == "\"stock\"");
    CHECK(quoted(dialect::sqlite, "Order") == "`Order`");
    CHECK(quoted(dialect::mysql, "order") == "`order`");
    CHECK(quoted(dialect::postgresql, "a\"; drop table b; --") == "\"a\"\"; drop table b; --\"");
    CHECK(quoted(dialect::mysql, "a`b\"c") == "`a``b\"c`");
}

TEST_CASE("a table may be qualified by a schema") {
    CHECK(quoted_table(dialect::postgresql, "shop.stock") == "\"shop\".\"stock\"");
    CHECK(quoted_table(dialect::mysql, "stock") == "`stock`");
    CHECK(kind_of([] { (void)quoted_table(dialect::postgresql, "a.b.c"); }) ==
          errc::invalid_options);
    CHECK(kind_of([] { (void)quoted_table(dialect::postgresql, "a."); }) == errc::invalid_options);
}

TEST_CASE("a name that the database would truncate or misread is refused") {
    for (const auto which : {dialect::postgresql, dialect::mysql, dialect::sqlite}) {
        CHECK(kind_of([&] { (void)quoted(which, ""); }) == errc::invalid_options);
        CHECK(kind_of([&] {
                  (void)quoted(which, std::string{"a\0b", 3});
              }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)quoted(which, "a\xff"); }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)quoted(which, std::string(65, 'a')); }) == errc::invalid_options);
    }
    // 32 letters of two bytes: within MySQL's 64 characters, beyond PostgreSQL's 63 bytes.
    std::string umlauts;
    for (int i = 0; i < 32; ++i) umlauts += "\xc3\xa4";
    CHECK(kind_of([&] { (void)quoted(dialect::postgresql, umlauts); }) == errc::invalid_options);
    CHECK(quoted(dialect::mysql, umlauts).size() == 66);
}

TEST_CASE("names of columns that differ in case are two on PostgreSQL, and one elsewhere") {
    using rowlock::sql::same_name;
    CHECK(same_name(dialect::postgresql, "id", "id"));
    CHECK_FALSE(same_name(dialect::postgresql, "id", "ID"));
    CHECK(same_name(dialect::mysql, "id", "ID"));
    CHECK(same_name(dialect::sqlite, "id", "ID"));
    CHECK_FALSE(same_name(dialect::sqlite, "id", "id2"));
}
