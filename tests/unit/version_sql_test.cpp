#include "transaction/optimistic/version_sql.hpp"

#include "support/failure.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace rowlock;
using namespace rowlock::optimistic;

namespace {

table_shape counted(sql::dialect speaks) {
    const char quote = speaks == sql::dialect::postgresql ? '"' : '`';
    const auto quoted = [quote](const std::string& name) { return quote + name + quote; };
    return {.speaks = speaks,
            .table = quoted("stock"),
            .key = {quoted("region"), quoted("sku")},
            .version = quoted("version")};
}

table_shape timed(sql::dialect speaks, storage stored) {
    table_shape shape = counted(speaks);
    shape.version_is_time = true;
    shape.version_stored = stored;
    return shape;
}

const std::vector<assignment> sale{increment("quantity", -1), {"note", "x"}};
const std::vector<assignment> nothing;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an update compares and increases the version in one statement") {
    CHECK(update_text(counted(sql::dialect::postgresql), sale, mark::keep) ==
          "update \"stock\" set \"version\" = \"version\" operator(pg_catalog.+) 1, "
          "\"quantity\" = \"quantity\" operator(pg_catalog.+) $4, \"note\" = $5 "
          "where \"region\" operator(pg_catalog.=) $1 and \"sku\" operator(pg_catalog.=) $2 "
          "and \"version\" operator(pg_catalog.=) $3 "
          "returning \"version\"");
    CHECK(update_text(counted(sql::dialect::mysql), sale, mark::keep) ==
          "update `stock` set `version` = `version` + 1, `quantity` = `quantity` + $4, "
          "`note` = $5 where `region` = $1 and `sku` = $2 and `version` = $3");
    CHECK(update_text(counted(sql::dialect::sqlite), nothing, mark::keep) ==
          "update `stock` set `version` = `version` + 1 where `region` = $1 and "
          "`sku` = $2 and `version` = $3 returning `version`");
}

TEST_CASE("a time increases by at least one step") {
    const std::string zoned =
        update_text(timed(sql::dialect::postgresql, storage::zoned_time), nothing, mark::keep);
    CHECK(contains(zoned,
                   "set \"version\" = greatest(pg_catalog.clock_timestamp(), \"version\" "
                   "operator(pg_catalog.+) interval '1 "
                   "microsecond') where"));
    CHECK(contains(zoned,
                   "(extract(epoch from \"version\") operator(pg_catalog.*) 1000000)::bigint end "
                   "operator(pg_catalog.=) $3"));
    CHECK(contains(
        update_text(timed(sql::dialect::postgresql, storage::plain_time), nothing, mark::keep),
        "greatest(pg_catalog.clock_timestamp() at time zone 'UTC', "));

    // The new time is a parameter, so the assignments' numbers are greater by one.
    const table_shape mysql = timed(sql::dialect::mysql, storage::plain_time);
    CHECK(needs_new_version(mysql));
    CHECK(update_text(mysql, sale, mark::keep) ==
          "update `stock` set `version` = timestamp('1970-01-01') + interval $4 microsecond, "
          "`quantity` = `quantity` + $5, `note` = $6 where `region` = $1 and `sku` = $2 and "
          "timestampdiff(microsecond, '1970-01-01', `version`) = $3");

    const std::string sqlite =
        update_text(timed(sql::dialect::sqlite, storage::text), nothing, mark::keep);
    CHECK(contains(sqlite, "`version`, '+0.001 seconds'"));
    CHECK(contains(sqlite, "`version` + 1)"));
    CHECK(contains(sqlite, "cast(`version` as text) = $3"));
    CHECK(contains(sqlite, "is not null returning"));
}

TEST_CASE("rows that are marked as deleted are left alone, except by restore") {
    table_shape shape = counted(sql::dialect::postgresql);
    shape.deleted_at = "\"gone\"";
    shape.deleted_stored = storage::zoned_time;
    CHECK(contains(update_text(shape, sale, mark::keep),
                   "\"version\" operator(pg_catalog.=) $3 and \"gone\" is null "));
    const std::string set = update_text(shape, nothing, mark::set);
    CHECK(contains(set, "\"gone\" = pg_catalog.clock_timestamp() where"));
    CHECK(contains(set, "and \"gone\" is null "));
    const std::string clear = update_text(shape, nothing, mark::clear);
    CHECK(contains(clear, "\"gone\" = null where"));
    CHECK(contains(clear, "and \"gone\" is not null "));
}

TEST_CASE("rows are read by key, inserted if absent, and erased by version") {
    const std::vector<std::string> columns{"\"quantity\""};
    CHECK(
        read_text(counted(sql::dialect::postgresql), columns) ==
        "select \"version\", 0, 1, \"quantity\" from \"stock\" "
        "where \"region\" operator(pg_catalog.=) $1 and \"sku\" operator(pg_catalog.=) $2 limit 2");
    const std::vector<assignment> one{{"quantity", 5}};
    CHECK(insert_text(counted(sql::dialect::sqlite), one) ==
          "insert into `stock` (`region`, `sku`, `version`, `quantity`) values ($1, $2, "
          "1, $3) on conflict (`region`, `sku`) do nothing returning `version`");
    CHECK(insert_text(counted(sql::dialect::mysql), one) ==
          "insert into `stock` (`region`, `sku`, `version`, `quantity`) values ($1, $2, 1, $3)");
    CHECK(erase_text(counted(sql::dialect::mysql)) ==
          "delete from `stock` where `region` = $1 and `sku` = $2 and `version` = $3");
}

TEST_CASE("a column's name cannot end its quotes, and an unusable one is refused") {
    const std::vector<assignment> odd{{"a\"b", 5}};
    CHECK(contains(update_text(counted(sql::dialect::postgresql), odd, mark::keep),
                   "\"a\"\"b\" = $4"));
    const std::vector<assignment> control{{"a\nb", 5}};
    CHECK(support::kind_of([&] {
              (void)update_text(counted(sql::dialect::mysql), control, mark::keep);
          }) == errc::invalid_options);
}

TEST_CASE("a version converts to text and back") {
    CHECK(row_version{42} == row_version{"42"});
    CHECK(row_version{"42"}.number() == 42);
    CHECK(row_version{42}.str() == "42");
    CHECK(support::kind_of([] { (void)row_version{"4 2"}.number(); }) == errc::invalid_options);
    CHECK(support::kind_of([] { (void)row_version{""}.number(); }) == errc::invalid_options);
    CHECK(support::kind_of([] { (void)row_version{"99999999999999999999"}.number(); }) ==
          errc::invalid_options);
}
