// Two people edit the same row. Nothing is locked while they think; the second save is a conflict.
//
//   12_optimistic [URL]

#include "example.hpp"
#include <rowlock/optimistic.hpp>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const rowlock::sql::connection_source& database) {
        const auto until = std::chrono::steady_clock::now() + 10s;
        const auto db = database.connect(until);  // or a connection_ref over a handle of yours
        db->query("drop table if exists example_stock", until);
        db->query(
            "create table example_stock (sku varchar(20) primary key, quantity bigint not null, "
            "version bigint not null)",
            until);

        const rowlock::versioned_table stock{
            {.table = "example_stock", .key = {"sku"}, .version = "version"}};
        (void)stock.insert(*db, "A1", {{"quantity", 10}});

        // Both have read version 1.
        const auto anna = stock.read(*db, "A1", {"quantity"});
        const auto ben = stock.read(*db, "A1", {"quantity"});
        const auto annas = stock.update(*db, "A1", anna->version(), {{"quantity", 7}});
        const auto bens = stock.update(*db, "A1", ben->version(), {{"quantity", 9}});
        std::cout << "Anna saved: " << (annas ? "yes" : "no") << ", Ben: " << (bens ? "yes" : "no")
                  << '\n';

        // A program repeats its read by itself, in a new transaction each time.
        const auto sold = rowlock::retry_on_conflict(*db, {}, [&](int) {
            const auto row = stock.read(*db, "A1", {"quantity"});
            return stock.update(*db, "A1", row->version(), {rowlock::increment("quantity", -1)});
        });
        std::cout << "sold one at attempt " << sold.attempts << ", version is now "
                  << sold.value.version().str() << '\n';

        // A resource without a row can have a version, too.
        const rowlock::versions files;
        auto seen = files.read(*db, "example/report.pdf");
        if (!seen) seen = files.create(*db, "example/report.pdf");
        std::cout << "the report moved on: "
                  << (files.update(*db, "example/report.pdf", *seen) ? "yes" : "no") << '\n';
        db->query("drop table example_stock", until);
    });
}
