#pragma once

#include "common/measure.hpp"

#include <memory>
#include <string>

/// The statements that ShedLock's JDBC provider sends for a scheduled task: an update that takes
/// the lock if its time is over, and one that ends it. Both wait for the disk. It has no owner's
/// heartbeat, no token and no record of periods: a task that takes longer than its limit overlaps
/// the next.
namespace bench {

/// The table that ShedLock's users make, for the lifetime of this object. On PostgreSQL and
/// MariaDB.
class shedlock_table {
public:
    virtual ~shedlock_table() = default;
    /// Locks and unlocks that name with each turn, on a connection of its own.
    [[nodiscard]] virtual std::unique_ptr<worker> task(const std::string& name) = 0;

    shedlock_table(const shedlock_table&) = delete;
    shedlock_table& operator=(const shedlock_table&) = delete;

protected:
    shedlock_table() = default;
};

[[nodiscard]] std::unique_ptr<shedlock_table> shedlock_on_postgresql(const std::string& url);
[[nodiscard]] std::unique_ptr<shedlock_table> shedlock_on_mariadb(const std::string& url);

}  // namespace bench
