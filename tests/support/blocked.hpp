#pragma once

#include "support/lock_database.hpp"

namespace support {

/// Until somebody at the server waits for a row's lock (held by the test).
inline bool somebody_waits_for_a_row(support::lock_database& database) {
    const bool postgresql = database.speaks() == rowlock::sql::dialect::postgresql;
    return eventually([&] {
        // InnoDB renews this view only if nobody has read it for 100 ms.
        if (!postgresql) std::this_thread::sleep_for(std::chrono::milliseconds{150});
        return database.number(
                   postgresql
                       ? "select count(*) from pg_locks l join pg_stat_activity a using (pid) "
                         "where not l.granted and a.query like '%" +
                             database.prefix() + "%'"
                       : "select count(*) from information_schema.innodb_trx "
                         "where trx_state = 'LOCK WAIT' and trx_query like '%" +
                             database.prefix() + "%'") > 0;
    });
}

}  // namespace support
