#pragma once

#include "sql/changed_settings.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace rowlock::detail {
class row_keys;  // transaction/rows/row_keys.hpp
}

namespace rowlock::sql {

/// Facts about a connection, learnt when first needed and kept as long as it lives.
struct connection_memory {
    std::optional<server_facts> facts;  ///< facts_of()
    std::optional<std::string> server;  ///< session_protocol::server_of()
    bool refuses_skip_locked = false;   ///< MariaDB before 10.6
    bool avoids_scans = false;          ///< PostgreSQL: enable_seqscan is off
    /// mysql_wait::wake(): names the lock that it took last; one for all users of a shared
    /// connection
    std::shared_ptr<std::atomic<std::int64_t>> wakeup_lock =
        std::make_shared<std::atomic<std::int64_t>>(0);
    changed_settings settings;               ///< limit_idle_time()
    std::shared_ptr<detail::row_keys> keys;  ///< detail::row_keys::of()
};

[[nodiscard]] connection_memory& memory_of(connection& db);

}  // namespace rowlock::sql
