#include "shop.hpp"

#include <array>
#include <chrono>

using rowlock::sql::connection;
using rowlock::sql::value;

shop::shop(const std::string& suffix)
    : stock_{"inventory_stock_" + suffix},
      sales_{"inventory_sale_" + suffix},
      read_{"select items from " + stock_ + " where id = 1"},
      write_{"update " + stock_ + " set items = $1 where id = 1"},
      record_{"insert into " + sales_ + " (id, items) values ($1, $2)"} {}

void shop::open(connection& db, int items) const {
    db.query("create table " + stock_ +
                 " (id integer primary key, items integer not null, version bigint not null)",
             soon());
    db.query("create table " + sales_ + " (id bigint primary key, items integer not null)", soon());
    db.query("insert into " + stock_ + " values (1, " + std::to_string(items) + ", 1)", soon());
}

void shop::close(connection& db) const {
    db.query("drop table if exists " + stock_, soon());
    db.query("drop table if exists " + sales_, soon());
}

int shop::stock(connection& db) const {
    return static_cast<int>(db.execute(read_, {}, soon()).integer(0, 0));
}

void shop::sell(connection& db, int stock_read, std::int64_t sale) const {
    db.execute(write_, std::array{value{stock_read - 1}}, soon());
    record(db, stock_read, sale);
}

void shop::record(connection& db, int stock_read, std::int64_t sale) const {
    db.execute(record_, std::array{value{sale}, value{stock_read}}, soon());
}

int shop::sold(connection& db) const {
    return static_cast<int>(db.query("select count(*) from " + sales_, soon()).integer(0, 0));
}

transaction::transaction(connection& db) : db_{db} {
    const bool sqlite = db.speaks() == rowlock::sql::dialect::sqlite;
    db.query(sqlite ? "begin immediate" : "begin", soon());
}

transaction::~transaction() {
    try {
        if (!done_) db_.query("rollback", soon());
    } catch (const std::exception&) {
        // The connection broke: the server rolls back.
    }
}

void transaction::commit() {
    db_.query("commit", soon());
    done_ = true;
}

rowlock::sql::deadline soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds{30};
}

std::string server_of(connection& db) {
    if (db.speaks() != rowlock::sql::dialect::mysql) return std::string{to_string(db.speaks())};
    const auto version = db.query("select version()", soon());
    return version.text(0, 0).find("MariaDB") == std::string_view::npos ? "mysql" : "mariadb";
}
