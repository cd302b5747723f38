#pragma once

#include "support/this_process.hpp"
#include "support/waits.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// A connection of a MariaDB or MySQL server.
struct mysql_process {
    std::int64_t id = 0;
    std::string user, host;  ///< the host with its port
    std::string state, statement;
    std::int64_t seconds = 0;  ///< in that state

    [[nodiscard]] bool is_of_this_program() const {
        std::string ports = ports_of_this_process();  // (0, 40112, 40114)
        ports.back() = ',';
        return ports.find(' ' + host.substr(host.rfind(':') + 1) + ',') != std::string::npos;
    }
};

/// What SHOW lists, since MySQL has no table for it that can always be read:
/// information_schema.processlist cannot while any statement has a character that utf8mb3 lacks
/// (error 3854; the upper end of rowlock's own lists is one), and performance_schema's is empty
/// where that is off, as on the servers of the tests.
inline std::vector<mysql_process> processes(
    rowlock::sql::connection& db, const std::function<bool(const mysql_process&)>& is_wanted) {
    std::vector<mysql_process> found;
    // Id, user, host, database, command, time, state, statement.
    const auto all = db.query("show full processlist", soon());
    for (std::size_t row = 0; row < all.rows(); ++row) {
        const auto text = [&](std::size_t column) { return std::string{all.text(row, column)}; };
        mysql_process one{all.integer(row, 0),
                          text(1),
                          text(2),
                          text(6),
                          text(7),
                          all.maybe_integer(row, 5).value_or(0)};
        if (is_wanted(one)) found.push_back(std::move(one));
    }
    return found;
}

/// How many are in `state`, in a statement that contains `what`.
inline std::size_t processes_in(rowlock::sql::connection& db, std::string_view state,
                                std::string_view what) {
    return processes(db,
                     [&](const mysql_process& one) {
                         return one.state == state && one.statement.find(what) != std::string::npos;
                     })
        .size();
}

/// The process in which `session` sleeps in the server, until it is woken.
inline std::optional<mysql_process> sleeper(rowlock::sql::connection& db,
                                            rowlock::session_id session) {
    const auto found = processes(db, [&](const mysql_process& one) {
        return one.state == "User lock" &&
               one.statement.ends_with(" as rowlock_wake_" + to_string(session));
    });
    return found.empty() ? std::nullopt : std::optional{found.front()};
}

}  // namespace support
