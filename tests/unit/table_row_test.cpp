// The notation of keys, assignments and rows. The compiler decides the meaning of braces.

#include "support/failure.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace rowlock;
using support::kind_of;

namespace {

using kind = sql::value::kind;

template <typename To, typename From>
constexpr bool becomes = std::is_convertible_v<From, To>;

// One value is a key by itself.
static_assert(becomes<row_key, const char*> && becomes<row_key, const char (&)[3]>);
static_assert(becomes<row_key, std::string> && becomes<row_key, std::string_view>);
static_assert(becomes<row_key, int> && becomes<row_key, std::int64_t>);
static_assert(becomes<row_key, std::optional<std::string>> && becomes<row_key, sql::value>);
// A type that is not a value, or that could be one key of several columns or several keys, is not.
static_assert(!becomes<row_key, bool> && !becomes<row_key, char> && !becomes<row_key, double>);
static_assert(!becomes<row_key, std::vector<sql::value>>);
static_assert(std::is_constructible_v<row_key, std::vector<sql::value>>);
static_assert(!becomes<std::vector<row_key>, const char*> && !becomes<std::vector<row_key>, int>);
// A column's name alone is not an assignment, and a pair of braces within braces is not a string.
static_assert(!becomes<assignment, const char*> && !becomes<sql::value, bool>);
static_assert(!std::is_constructible_v<sql::value, const char*, const char*>);
// A versioned row is a row.
static_assert(becomes<const table_row&, const versioned_row&>);

std::vector<sql::value> key(const row_key& given) {
    return given.values();
}

std::vector<std::size_t> lengths(const std::vector<row_key>& keys) {
    std::vector<std::size_t> made;
    for (const auto& each : keys) made.push_back(each.values().size());
    return made;
}

std::vector<std::string_view> columns(const key_columns& given) {
    return given.names();
}

std::vector<assignment> written(const std::vector<assignment>& given) {
    return given;
}

using sizes = std::vector<std::size_t>;

}  // namespace

TEST_CASE("a key is one value, or its values in braces") {
    REQUIRE(key("A1").size() == 1);
    CHECK(key("A1")[0].text() == "A1");
    CHECK(key({"A1"})[0].text() == "A1");
    CHECK(key(42)[0].integer() == 42);
    CHECK(key({42})[0].integer() == 42);
    CHECK(key(0)[0].type() == kind::integer);
    CHECK(key({0})[0].type() == kind::integer);
    CHECK(key(nullptr)[0].is_null());

    const auto texts = key({"a", "b"});
    REQUIRE(texts.size() == 2);
    CHECK(texts[0].text() == "a");
    CHECK(texts[1].text() == "b");
    const auto mixed = key({"eu", 42});
    REQUIRE(mixed.size() == 2);
    CHECK(mixed[0].text() == "eu");
    CHECK(mixed[1].integer() == 42);
    CHECK(key({{"a"}, {"b"}}).size() == 2);
    const std::string kept = "A1";
    CHECK(key(kept)[0].text().data() == kept.data());
    CHECK(key(row_key{std::vector<sql::value>{sql::value{1}, sql::value{2}}}).size() == 2);
}

TEST_CASE("several keys are distinguished from one key of several columns") {
    CHECK(lengths({{"A1"}, {"B2"}}) == sizes{1, 1});
    CHECK(lengths({"A1", "B2"}) == sizes{1, 1});
    CHECK(lengths({{"A1"}}) == sizes{1});
    CHECK(lengths({1, 2, 3}) == sizes{1, 1, 1});
    CHECK(lengths({{"eu", "A1"}, {"us", "B2"}}) == sizes{2, 2});
    CHECK(lengths({{"eu", "A1"}}) == sizes{2});
    CHECK(lengths({{"eu", 1}, {"us", 2}, {"cn", 3}}) == sizes{2, 2, 2});
    CHECK(lengths({}).empty());
    CHECK(columns({"sku"}).size() == 1);
    CHECK(columns({"warehouse", "sku"}).size() == 2);
}

TEST_CASE("assignments are a column and a value, or an increment") {
    const auto made = written({{"note", "x"}, {"balance", 250}, increment("quantity", -1)});
    REQUIRE(made.size() == 3);
    CHECK(made[0].column == "note");
    CHECK(made[0].value.text() == "x");
    CHECK(made[1].value.integer() == 250);
    CHECK_FALSE(made[1].adds);
    CHECK(made[2].adds);
    CHECK(made[2].value.integer() == -1);
    const auto one = written({{"a", "b"}});
    REQUIRE(one.size() == 1);
    CHECK(one[0].column == "a");
    CHECK(one[0].value.text() == "b");
    CHECK(written({{"a", nullptr}})[0].value.is_null());
    CHECK(written({increment("a")}).size() == 1);
    CHECK(written({}).empty());
}

TEST_CASE("a row's values are found by the names of the requested columns") {
    sql::result cells{4};
    cells.append_integer(7);
    cells.append_text("A1");
    cells.append_integer(-3);
    cells.append_null();
    const table_row row{{"sku", "stock", "note"}, std::move(cells), 1};
    CHECK(row.columns() == std::vector<std::string>{"sku", "stock", "note"});
    CHECK(row.text("sku") == "A1");
    CHECK(row.integer("stock") == -3);
    CHECK(row.maybe_integer("stock") == -3);
    CHECK(row.maybe_integer("note") == std::nullopt);
    CHECK(row.is_null("note"));
    CHECK_FALSE(row.is_null("sku"));
    CHECK(row.text("note").empty());
    CHECK(kind_of([&] { (void)row.integer("note"); }) == errc::database_error);
    CHECK(kind_of([&] { (void)row.integer("sku"); }) == errc::database_error);
    CHECK(kind_of([&] { (void)row.text("STOCK"); }) == errc::invalid_options);
    CHECK(kind_of([&] { (void)row.is_null("other"); }) == errc::invalid_options);
    const table_row copy = row;
    CHECK(copy.text("sku") == "A1");
}
