#pragma once

#include "support/mariadb_home.hpp"
#include "support/server_process.hpp"

#include <memory>
#include <string>

namespace support {

/// A Galera cluster of one node, MariaDB's own provider in it: what a client sees of a cluster, and
/// what one node does by itself. On free ports of 127.0.0.1. Takes a few seconds: start one for a
/// whole test program.
class galera_node {
public:
    /// Null if mariadbd or the provider is missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<galera_node> start();

    /// mysql://…, a user with all rights, and a database.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    galera_node() = default;

    std::unique_ptr<mariadb_home> home_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

}  // namespace support
