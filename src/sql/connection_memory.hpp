#pragma once

#include "sql/changed_settings.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace rowlock::strategy {
class row_keys;  // strategy/row_keys.hpp
}

namespace rowlock::sql {

/// strategy::wake_up: who sleeps on which connection of the server that this one leads to.
struct known_sleepers {
    bool numbers_checked = false;
    bool unreachable = false;  ///< a proxy has numbers of its own
    std::unordered_map<std::int64_t, std::int64_t> connection_of;  ///< by session
};

/// What is learnt of a connection when it is first needed, and known as long as it lives.
struct connection_memory {
    std::optional<server_facts> facts;  ///< facts_of()
    changed_settings settings;          ///< limit_idle_time()
    known_sleepers sleepers;
    std::shared_ptr<strategy::row_keys> keys;  ///< strategy::row_keys::of()
};

[[nodiscard]] connection_memory& memory_of(connection& db);

}  // namespace rowlock::sql
