#pragma once

#include "shop.hpp"
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// One worker's view of the shop.
struct clerk {
    const rowlock::sql::connection_source& database;
    rowlock::sql::connection& db;
    const shop& goods;
    std::string lock_name;
    std::int64_t next_sale;                 ///< unique among the workers
    int patience;                           ///< most sales of one worker
    std::chrono::milliseconds to_think{2};  ///< between reading the stock and writing it

    void think() const;
    /// Reads, thinks, writes in one transaction. False if nothing was left.
    bool sell_in_transaction();

    // The parent counts these.
    void sold_one();
    void met_conflict();  ///< the value read was outdated: nothing was sold
    void tried_again();   ///< repeated a transaction, for that or another reason
};

/// How a worker sells until nothing is left.
struct strategy {
    std::string_view name;
    void (*work)(clerk&);
    bool never_oversells;
    bool on_sqlite;
};

[[nodiscard]] std::span<const strategy> strategies();
[[nodiscard]] const strategy* find_strategy(std::string_view name);
