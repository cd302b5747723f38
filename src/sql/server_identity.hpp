#pragma once

#include <string_view>

namespace rowlock::sql {

/// Whether a server's identity (server_facts::server) is that of a cluster, so that its sessions
/// may be used on any member. Each member has a clock.
[[nodiscard]] inline bool identifies_cluster(std::string_view server) noexcept {
    return server.starts_with("galera:") || server.starts_with("group:");
}

}  // namespace rowlock::sql
