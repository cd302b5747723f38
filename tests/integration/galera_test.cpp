#include "sql/server_facts.hpp"
#include "support/failure.hpp"
#include "support/galera_node.hpp"
#include "support/lock_database.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>
#include <rowlock/row_session.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>

using namespace rowlock;
using support::kind_of;
using support::soon;

TEST_CASE("row locks are refused on a Galera node unless the risk is accepted by its name") {
    const auto node = support::galera_node::start();
    if (!node) return;
    const auto source = open(node->url());
    const auto db = source.connect(soon());
    REQUIRE(sql::facts_of(*db, soon()).galera);
    db->query("create table inventory (sku varchar(20) primary key, stock integer)", soon());
    db->query("insert into inventory values ('A1', 10)", soon());

    try {
        const row_session refused{source};
        FAIL("not refused");
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::unsupported);
        CHECK_FALSE(failure.retryable());
        CHECK(std::string_view{failure.what()}.find("another node") != std::string_view::npos);
    }
    db->query("begin", soon());
    CHECK(kind_of([&] { (void)lock_row(*db, "inventory", {"sku"}, {"A1"}); }) == errc::unsupported);
    CHECK(lock_row(*db, "inventory", {"sku"}, {"A1"}, {.accept_double_grants_on_galera = true}));
    db->query("rollback", soon());

    const row_session_options accepting{.accept_double_grants_on_galera = true};
    retry(source, {}, accepting, [](row_session& session) {
        const auto row = session.lock("inventory", {"sku"}, {"A1"}, {.columns = {"stock"}});
        CHECK(row->integer("stock") == 10);
        session.connection().query("update inventory set stock = 9", soon());
    });
    CHECK(db->query("select stock from inventory", soon()).integer(0, 0) == 9);
}

TEST_CASE("a MariaDB without a cluster is no Galera node") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        CHECK_FALSE(sql::facts_of(*database.connect(), soon()).galera);
    }
}
