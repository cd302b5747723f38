#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <string>

/// Two tables: the stock, and the sales.
class shop {
public:
    /// @param suffix distinguishes the tables of several runs
    explicit shop(const std::string& suffix);

    void open(rowlock::sql::connection& db, int items) const;
    void close(rowlock::sql::connection& db) const;

    [[nodiscard]] int stock(rowlock::sql::connection& db) const;
    /// The dangerous half of read-then-write: the stock that was read may be outdated. Two
    /// statements, so inside a transaction.
    void sell(rowlock::sql::connection& db, int stock_read, std::int64_t sale) const;
    /// Only the second of them.
    void record(rowlock::sql::connection& db, int stock_read, std::int64_t sale) const;
    [[nodiscard]] int sold(rowlock::sql::connection& db) const;

    [[nodiscard]] const std::string& stock_table() const { return stock_; }

private:
    std::string stock_, sales_;
    rowlock::sql::statement read_, write_, record_;
};

/// Begins a transaction; rolled back unless committed.
class transaction {
public:
    explicit transaction(rowlock::sql::connection& db);
    ~transaction();
    transaction(const transaction&) = delete;
    transaction& operator=(const transaction&) = delete;
    void commit();

private:
    rowlock::sql::connection& db_;
    bool done_ = false;
};

/// No statement of this program takes longer.
[[nodiscard]] rowlock::sql::deadline soon();
/// "postgresql", "mariadb", …
[[nodiscard]] std::string server_of(rowlock::sql::connection& db);
