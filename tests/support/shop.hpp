#pragma once

#include "support/lock_database.hpp"

#include <string>

namespace support {

/// An application's table with three rows: few enough for InnoDB's optimizer to prefer a scan. sku
/// is unique, shelf is not, size is half of a unique pair.
class shop {
public:
    explicit shop(lock_database& database)
        : database_{database}, table_{database.prefix() + "inventory"} {
        database_.run("create table " + table_ +
                      " (id integer not null primary key, sku varchar(40) not null unique, "
                      "shelf integer, size integer not null, colour integer not null, "
                      "stock integer not null, unique (size, colour))");
        for (const char* row :
             {"(1, 'A1', 7, 1, 1, 10)", "(2, 'B2', 7, 1, 2, 20)", "(3, 'C3', 8, 2, 1, 30)"}) {
            database_.run("insert into " + table_ + " values " + row);
        }
    }
    shop(const shop&) = delete;
    shop& operator=(const shop&) = delete;
    ~shop() { drop("table " + table_); }

    [[nodiscard]] const std::string& table() const noexcept { return table_; }
    [[nodiscard]] std::int64_t stock(const std::string& sku) {
        return database_.number("select stock from " + table_ + " where sku = '" + sku + "'");
    }
    [[nodiscard]] std::string take_one(const std::string& sku) const {
        return "update " + table_ + " set stock = stock - 1 where sku = '" + sku + "'";
    }
    void drop(const std::string& what) noexcept {
        try {
            database_.run("drop " + what);
        } catch (const std::exception&) {  // gone already
        }
    }

private:
    lock_database& database_;
    std::string table_;
};

}  // namespace support
