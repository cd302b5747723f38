#pragma once

#include "support/mariadb_home.hpp"
#include "support/server_process.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// A Galera cluster of one node, with MariaDB's own provider: a cluster as a client sees it, and
/// the behaviour of a single node. On free ports of 127.0.0.1. Takes a few seconds, so start one
/// for a whole test program.
class galera_node {
public:
    /// Null if mariadbd or the provider is missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<galera_node> start();

    /// mysql://… with a user with all rights, and a database.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    galera_node() = default;

    std::unique_ptr<mariadb_home> home_;
    std::unique_ptr<server_process> process_;
    std::string url_;
};

/// Several nodes of one cluster on this machine. Their data is copied from the first, so that no
/// state transfer is needed. Takes about ten seconds.
class galera_cluster {
public:
    /// Null like galera_node::start().
    [[nodiscard]] static std::unique_ptr<galera_cluster> start(int nodes);

    [[nodiscard]] int size() const noexcept { return static_cast<int>(nodes_.size()); }
    /// The URL of one node. All have the same user.
    [[nodiscard]] const std::string& url(int node) const;
    /// A URL with all nodes, this one first.
    [[nodiscard]] std::string url_from(int node) const;
    /// Cuts a node off from the others, which detect it within seconds. The node answers its
    /// clients, and refuses their statements.
    void isolate(int node);
    /// Reconnects the node, and waits until it has joined the others.
    void rejoin(int node);

private:
    struct member {
        std::unique_ptr<server_folder> folder;
        std::uint16_t port = 0;
        std::string url;
        std::unique_ptr<server_process> process;
    };

    galera_cluster() = default;
    [[nodiscard]] bool run(bool first);
    [[nodiscard]] std::string status(int node, const std::string& variable) const;

    std::unique_ptr<mariadb_home> home_;
    std::vector<member> nodes_;
};

}  // namespace support
